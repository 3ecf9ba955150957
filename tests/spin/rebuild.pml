/*
 * rebuild.pml - online exact rebuild (rule 7), a crash at every step.
 *
 * Two leaves under one inner node. The inner node lives twice, by epoch parity: epoch e sums in
 * arr[e & 1]. Clients change leaf words by CAS, compute their deltas at the CAS, and add them to
 * the arrays later. Meanwhile a rebuilder runs passes: NORMAL -> ZERO -> DUAL -> NORMAL(e + 1).
 * Any client may die with deltas that it never added; the first rebuilder may die anywhere, and a
 * second one takes over after the fence.
 *
 * Invariant: once all calls have returned and the last pass was clean, the sum of the current
 * epoch is the sum of the leaves.
 *
 * KEEP_VIEW: calls over a wire. The promise goes ahead of the CASes on one queue pair and nobody looks
 * at the epoch behind it: the view is that of the last call, unless that was DUAL. A tag outside it
 * has it read again, under the older promise.
 *
 * HOLD: clients hold deltas across calls and keep their promise standing (else: IDLE between
 * calls, deltas added before the call returns).
 *
 * Switches, each breaks one rule (see docs/models.md):
 *	NO_BARRIER  FLUSH_BY_MODE  NO_RECHECK  IDLE_BEFORE_FLUSH  RAISE_BEFORE_FLUSH  NO_DIRTY
 *	KEEP_DUAL  DIRTY_AT_FLIP  NO_EXTRA_PASS  NO_ZERO_AGAIN  TWO_REBUILDERS
 */
#ifndef OPS
#define OPS 1			/* updates by each client */
#endif
#ifndef KILLS
#define KILLS 1			/* clients killed */
#endif
#ifndef PASSES
#define PASSES 2		/* passes at least allowed; while not clean, more */
#endif
#ifndef TAKEOVER
#define TAKEOVER 0		/* 1: the first rebuilder may die */
#endif

#define CLIENTS 2
#define TAG(e) ((e) % 4)
#define ARR(e) ((e) & 1)
#define NORMAL 0
#define ZERO 1
#define DUAL 2
#define IDLE 200		/* promise: no delta and no call in progress */
#define NEVER 255		/* no count of dirty: this pass cannot be clean */

/* The rebuild header word {epoch, mode, owner}. */
byte epoch;
byte mode = NORMAL;
byte owner;

byte leaf_tag[2];
byte leaf_prio[2];
short arr[2];

/* Promise in the client's slot: v = "I hold and will make no delta computed under an epoch < v". */
#ifdef HOLD
byte promise[CLIENTS];
#else
byte promise[CLIENTS] = IDLE;
#endif
bool dead[CLIENTS];
byte kills;
byte dirty;			/* clients fenced while not idle */
byte seen;			/* dirty as of the last pass that was clean */
byte passes;
byte running;			/* clients neither returned nor fenced */
bool rebuilder_dead;
bool rebuilder_fenced;
byte rebuilding;		/* rebuilders at work, a dead one until its successor is done */

#if KILLS
#define MAY_DIE								\
	if								\
	:: skip								\
	:: kills < KILLS -> kills++; dead[me] = true; goto died		\
	fi
#else
#define MAY_DIE skip
#endif

#if TAKEOVER
#define REBUILDER_MAY_DIE						\
	if								\
	:: skip								\
	:: me == 0 -> rebuilder_dead = true; goto died			\
	fi
#else
#define REBUILDER_MAY_DIE skip
#endif

#ifdef TWO_REBUILDERS
#define IS_MINE true
#else
#define IS_MINE (owner == me)
#endif

/* Add what is buffered to the arrays, one FAA each. */
inline flush()
{
#ifdef FLUSH_BY_MODE
	atomic {
		MAY_DIE;
		arr[ARR(epoch)] = arr[ARR(epoch)] + old_delta;
		if
		:: mode == DUAL -> arr[ARR(epoch + 1)] = arr[ARR(epoch + 1)] + new_delta
		:: else -> skip
		fi;
		old_delta = 0;
		new_delta = 0
	}
#else
	atomic {
		MAY_DIE;
		arr[0] = arr[0] + delta[0];
		delta[0] = 0
	};
	atomic {
		MAY_DIE;
		arr[1] = arr[1] + delta[1];
		delta[1] = 0
	}
#endif
}

/* The target of a delta is fixed here, by the tags of the words that the CAS swapped. */
inline record_delta()
{
#ifdef FLUSH_BY_MODE
	old_delta = old_delta + new_prio - old_prio;
	new_delta = new_delta + new_prio - (tag == new_tag -> old_prio : 0);
#else
	delta[ARR(view)] = delta[ARR(view)] + new_prio - old_prio;
	if
	:: tag == TAG(view) && new_tag == tag -> skip
	:: tag == TAG(view) && new_tag != tag ->
		delta[ARR(view + 1)] = delta[ARR(view + 1)] + new_prio
	:: else ->
		delta[ARR(view + 1)] = delta[ARR(view + 1)] + new_prio - old_prio
	fi
#endif
}

#ifdef FLUSH_BY_MODE
#define NOTHING_HELD (old_delta == 0 && new_delta == 0)
#else
#define NOTHING_HELD (delta[0] == 0 && delta[1] == 0)
#endif

/* Entering a call: announce the epoch in the slot, then look whether it still stands. */
inline enter()
{
#ifdef KEEP_VIEW
	atomic { MAY_DIE; promise[me] = view };
#ifndef KEEP_DUAL
	if
	:: view_mode == DUAL -> atomic { MAY_DIE; view = epoch; view_mode = mode }
	:: else -> skip
	fi
#endif
#else
	atomic { MAY_DIE; view = epoch; view_mode = mode };
#ifdef HOLD
	if
	:: promise[me] < view ->
#ifdef RAISE_BEFORE_FLUSH
		atomic { MAY_DIE; promise[me] = view };
		flush()
#else
		if
		:: NOTHING_HELD -> skip
		:: else -> flush()
		fi;
		atomic { MAY_DIE; promise[me] = view }
#endif
	:: else -> skip
	fi
#else
	do
	:: true ->
		atomic { MAY_DIE; promise[me] = view };
#ifdef NO_RECHECK
		break
#else
		atomic {
			MAY_DIE;
			if
			:: epoch == view -> view_mode = mode; break
			:: else -> view = epoch
			fi
		}
#endif
	od
#endif
#endif
}

inline leave()
{
#if defined(IDLE_BEFORE_FLUSH)
	atomic { MAY_DIE; promise[me] = IDLE };
	flush()
#elif defined(HOLD)
	if
	:: skip
	:: flush()
	fi
#else
	flush();
	atomic { MAY_DIE; promise[me] = IDLE }
#endif
}

proctype client(byte me)
{
	byte view, view_mode, ops, l, tag, new_tag, old_prio, new_prio;
#ifdef FLUSH_BY_MODE
	short old_delta, new_delta;
#else
	short delta[2];
#endif

	do
	:: ops < OPS ->
		enter();
look:		atomic {			/* READ the leaf, derive the new word */
			MAY_DIE;
			select(l : 0 .. 1);
			tag = leaf_tag[l];
			old_prio = leaf_prio[l];
			new_prio = 1 + me * OPS + ops;
			if
			:: tag == TAG(view) -> new_tag = TAG(view_mode == DUAL -> view + 1 : view)
			:: tag == TAG(view + 1) && view_mode == DUAL -> new_tag = tag
			:: else ->		/* outside my view: read the header again */
#ifdef KEEP_VIEW
				view = epoch;
				view_mode = mode;
				goto look
#else
				goto again
#endif
			fi
		};
		atomic {			/* CAS */
			MAY_DIE;
			if
			:: leaf_tag[l] == tag && leaf_prio[l] == old_prio ->
				leaf_tag[l] = new_tag;
				leaf_prio[l] = new_prio;
				ops++;
				record_delta()
			:: else -> skip
			fi
		};
again:		leave();
#ifdef KEEP_VIEW
		atomic { l = 0; tag = 0; new_tag = 0; old_prio = 0; new_prio = 0 }
#else
		atomic { view = 0; view_mode = 0; l = 0; tag = 0; new_tag = 0; old_prio = 0; new_prio = 0 }
#endif
	:: else -> break
	od;
#ifdef HOLD
	flush();
	promise[me] = IDLE;
#endif
	running--;
died:	skip
}

/* The fence's proof holds: first dirty, then the slot is free. */
inline fence()
{
	atomic {
		dead[i] = false;
#ifndef NO_DIRTY
		if
		:: promise[i] != IDLE -> dirty++
		:: else -> skip			/* died idle: no drift, no rebuild */
		fi
#endif
	};
	atomic { promise[i] = IDLE; running--; i = 0 }
}

/* The metadata server fences the dead. */
proctype metadata_server()
{
	byte i;

end:	do
	:: atomic { dead[0] -> i = 0 }; fence()
	:: atomic { dead[1] -> i = 1 }; fence()
	:: atomic { rebuilder_dead -> rebuilder_dead = false; dirty++ }; rebuilder_fenced = true
	od
}

/* Barrier: no client holds or will make a delta computed under an older epoch. */
inline wait_for_promises()
{
#ifndef NO_BARRIER
	atomic { promise[0] >= epoch -> REBUILDER_MAY_DIE };
	atomic { promise[1] >= epoch -> REBUILDER_MAY_DIE }
#else
	skip
#endif
}

inline migrate(l)
{
	atomic {				/* READ and CAS, repeated until it swaps */
		REBUILDER_MAY_DIE;
		if
		:: leaf_tag[l] == TAG(view) ->
			leaf_tag[l] = TAG(view + 1);
			own = own + leaf_prio[l]
		:: else -> skip			/* somebody else migrated it */
		fi
	}
}

inline flip()
{
	atomic {				/* CAS {e, DUAL, me} -> {e + 1, NORMAL} */
		REBUILDER_MAY_DIE;
		if
		:: epoch == view && mode == DUAL && IS_MINE ->
			epoch++;
			mode = NORMAL;
			passes++;
#ifdef DIRTY_AT_FLIP
			seen = dirty
#else
			seen = before
#endif
		:: else -> skip
		fi;
		view = 0;
		before = 0;
		own = 0
	}
}

inline pass()
{
	atomic {
		REBUILDER_MAY_DIE;
		view = epoch;
		if
		:: mode == NORMAL -> mode = ZERO; owner = me
#ifdef NO_ZERO_AGAIN
		:: mode == ZERO -> owner = me; mode = DUAL; before = dirty; goto walk
#else
		:: mode == ZERO -> owner = me	/* taken over: wait and zero again */
#endif
		:: mode == DUAL ->		/* taken over: finish the walk, then another pass */
			owner = me;
#ifdef NO_EXTRA_PASS
			before = dirty;
#else
			before = NEVER;
#endif
			goto walk
		fi
	};
	atomic { REBUILDER_MAY_DIE; before = dirty };
	wait_for_promises();
	atomic { REBUILDER_MAY_DIE; arr[ARR(view + 1)] = 0 };
	atomic {				/* CAS {ZERO, me} -> {DUAL, me} */
		REBUILDER_MAY_DIE;
		if
		:: epoch == view && mode == ZERO && IS_MINE -> mode = DUAL
		:: else -> skip
		fi
	};
walk:	migrate(0);
	migrate(1);
	atomic { REBUILDER_MAY_DIE; arr[ARR(view + 1)] = arr[ARR(view + 1)] + own };
	flip()
}

proctype rebuilder(byte me)
{
	byte view, before;
	short own;

#ifndef TWO_REBUILDERS
end:	me == 0 || rebuilder_fenced;
#endif
	do
	:: passes < PASSES || seen != dirty || mode != NORMAL -> pass()
	:: running == 0 && seen == dirty && mode == NORMAL -> break
	od;
	rebuilding--;
died:	skip
}

init
{
	bool inexact;

	atomic {
		running = CLIENTS;
		run metadata_server();
		run client(0);
		run client(1);
		run rebuilder(0);
		rebuilding = 1;
#if TAKEOVER || defined(TWO_REBUILDERS)
		run rebuilder(1);
#endif
#ifdef TWO_REBUILDERS
		rebuilding = 2
#endif
	};
	atomic {
		running == 0 && rebuilding == 0 ->
		inexact = (arr[ARR(epoch)] != leaf_prio[0] + leaf_prio[1]);
		assert(!inexact)
	}
}
