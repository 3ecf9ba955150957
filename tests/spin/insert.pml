/*
 * insert.pml - block ownership and leaf words (rules 1 and 2), a crash at every step.
 *
 * One block of two rows, so a ticket is a lap and a generation. Three item leaves stand on it:
 *
 *	leaf 0  view A, a window on rows 0..1 (prioritized)
 *	leaf 1  view B, row 0 (queue: taken once)
 *	leaf 2  view B, row 1 (queue: taken once)
 *
 * A row word holds the lap of the writer that wrote it, so the bytes of an item are right when
 * every row of its window holds the lap whose writer published the leaf. That lap is kept in the
 * ghost published_by[]; ghosts are read by assertions only.
 *
 * Interleaving gives the stopped writer for nothing: any process may pause at any step while the
 * others use up all tickets, that is, while the ring goes round WRITERS - 1 times.
 *
 * Switches, each breaks one rule (see docs/models.md):
 *	CLAIM_ROW_BY_ROW  CLAIM_ONE_VIEW  NO_OWNER  GEN_FROM_LEAF  CLOSE_BY_TIME  NO_RECHECK
 *	UPDATE_CLAIMED  UPDATE_REVIVES  DELTA_FIRST_READ  NO_PUBLISH_RETRY
 */
#ifndef WRITERS
#define WRITERS 2
#endif
#ifndef KILLS
#define KILLS 0			/* writers killed; sums are kept only when nobody dies */
#endif
#ifndef DRAWS
#define DRAWS 0			/* the learner draws so often */
#endif
#ifndef UPDATES
#define UPDATES 0		/* 1: and updates what it drew */
#endif
#ifndef TAKES
#define TAKES 0			/* the queue consumer tries so often */
#endif
#ifndef MIGRATES
#define MIGRATES 0		/* 1: a rebuild passes over the leaves meanwhile */
#endif

#define LEAVES 3
#define VIEW(l) ((l) != 0)
#define FRESH 1			/* priority given by publish */
#define LEARNT 2		/* priority given by update */

/* The block header {open, owner, seq} and the head that gives tickets. */
byte head;
bool block_open;
byte block_owner;
byte block_seq;

/* Leaf words {tag, gen, priority}; priority 0 means "no item here". */
bit leaf_tag[LEAVES];
byte leaf_gen[LEAVES];
byte leaf_prio[LEAVES];

byte row[2];
short sum[2];			/* one inner node per view: the sum of its leaves */

bool dead[WRITERS];
byte kills;
byte running;

/* Before every step of a writer: go on, or be killed here. */
#if KILLS
#define MAY_DIE								\
	if								\
	:: skip								\
	:: kills < KILLS -> kills++; dead[me] = true; goto died		\
	fi
#define ADD_DELTA(l, d) skip
#else
#define MAY_DIE skip
#define ADD_DELTA(l, d) delta[VIEW(l)] = delta[VIEW(l)] + (d)
#endif

/* Ghosts. */
byte published_by[LEAVES];	/* lap that published the word; 0 from claim to publish */
bool taken[LEAVES];		/* delivered by the queue since the last claim */

/* The word last seen by this process; SAME is the compare of a CAS with it. */
#define READ_LEAF(l) old_tag = leaf_tag[l]; old_gen = leaf_gen[l]; old_prio = leaf_prio[l]
#define SAME_LEAF(l) (leaf_tag[l] == old_tag && leaf_gen[l] == old_gen && leaf_prio[l] == old_prio)

#ifdef DELTA_FIRST_READ
#define REPLACED first_prio
#else
#define REPLACED old_prio
#endif

#ifdef GEN_FROM_LEAF
#define NO_OWNER
#define NEW_GEN (old_gen + 1)
#define MY_GEN(l) got[l]
#else
#define NEW_GEN seq
#define MY_GEN(l) seq
#endif

/* claim: loop on the returned word until {tag, gen, 0} stands. */
inline claim(l)
{
	atomic { MAY_DIE; READ_LEAF(l); first_prio = old_prio };
	do
	:: atomic {
		SAME_LEAF(l) ->
		MAY_DIE;
		leaf_gen[l] = NEW_GEN;
		leaf_prio[l] = 0;
		ADD_DELTA(l, -REPLACED);
#ifdef GEN_FROM_LEAF
		got[l] = old_gen + 1;
#endif
		published_by[l] = 0;
		taken[l] = false;
		break
	   }
	:: else -> atomic { READ_LEAF(l) }
	od
}

inline write_row(r)
{
	atomic { MAY_DIE; row[r] = seq }
}

/* publish: {gen, 0} -> {gen, priority}; another tag is a retry, another gen means "fenced". */
inline publish(l)
{
	atomic { MAY_DIE; READ_LEAF(l); first_prio = old_prio };
	do
	:: atomic {
		SAME_LEAF(l) && old_gen == MY_GEN(l) ->
		MAY_DIE;
		leaf_prio[l] = FRESH;
		ADD_DELTA(l, FRESH - REPLACED);
		published_by[l] = seq;
		break
	   }
	:: old_gen != MY_GEN(l) -> break
	:: else ->
#ifdef NO_PUBLISH_RETRY
		atomic {
			item_lost = (leaf_gen[l] == MY_GEN(l));
			assert(!item_lost);
			break
		}
#else
		atomic { READ_LEAF(l) }
#endif
	od
}

inline flush()
{
	d_step {
		sum[0] = sum[0] + delta[0]; delta[0] = 0;
		sum[1] = sum[1] + delta[1]; delta[1] = 0
	}
}

/* An actor's client: one ticket, one block. */
proctype writer(byte me)
{
	byte seq, old_gen, old_prio, first_prio;
	bit old_tag;
	short delta[2];
	bool item_lost;
#ifdef GEN_FROM_LEAF
	byte got[LEAVES];
#endif

	atomic { MAY_DIE; head++; seq = head };		/* the ticket, by FAA */
#ifndef NO_OWNER
	atomic {					/* claim the header, or go away: */
		if					/* never wait, never take over */
		:: !block_open && block_seq < seq ->
			MAY_DIE;
			block_open = true;
			block_owner = me;
			block_seq = seq
		:: else -> goto done
		fi
	};
#endif
#if defined(CLAIM_ROW_BY_ROW)
	claim(1);
	write_row(0);
	publish(1);
	claim(0);
	claim(2);
	write_row(1);
#elif defined(CLAIM_ONE_VIEW)
	claim(0);
	write_row(0);
	claim(1);
	publish(1);
	write_row(1);
	claim(2);
#else
	claim(0);					/* all leaves, in every view */
	claim(1);
	claim(2);
	write_row(0);					/* only now the first row */
	publish(1);
	write_row(1);
#endif
	publish(0);
	publish(2);
	flush();
#ifndef NO_OWNER
	atomic {					/* close; a failed close means "fenced" */
		MAY_DIE;
		if
		:: block_open && block_owner == me && block_seq == seq -> block_open = false
		:: else -> skip
		fi
	};
#endif
died:
done:	running--
}

/* The metadata server closes the blocks of writers that the fence proved dead. */
proctype metadata_server()
{
end:	do
#ifdef CLOSE_BY_TIME
	:: atomic { block_open -> block_open = false }
#else
	:: atomic { block_open && dead[block_owner] -> block_open = false }
#endif
	od
}

/* A rebuild passes over the leaves: another tag, the same generation and priority. */
proctype migrator()
{
	leaf_tag[0] = MIGRATES;
	leaf_tag[1] = MIGRATES;
	running--
}

/* Locals back to 0 between calls: fewer states, nothing else. */
#define FORGET l = 0; gen = 0; old_tag = 0; old_gen = 0; old_prio = 0; bytes0 = 0; bytes1 = 0

inline check_bytes(l)
{
	wrong_bytes = ((l != 2 && bytes0 != published_by[l]) ||
		       (l != 1 && bytes1 != published_by[l]));
	assert(!wrong_bytes);
	wrong_bytes = false
}

/* Draw a leaf, read the rows, read the leaf again, then update by key. */
proctype learner()
{
	byte l, gen, old_gen, old_prio, bytes0, bytes1, draws;
	bit old_tag;
	bool wrong_bytes;
	short delta[2];

	do
	:: draws < DRAWS ->
		draws++;
		atomic {			/* sums are late: this may be a claimed leaf */
			select(l : 0 .. 2);
			READ_LEAF(l);
			gen = old_gen
		};
		if
#ifdef UPDATE_CLAIMED
		:: old_prio == 0 && gen != 0 -> skip
#else
		:: old_prio == 0 -> goto next
#endif
		:: old_prio != 0 ->
			if
			:: l != 2 -> bytes0 = row[0]
			:: else -> skip
			fi;
			if
			:: l != 1 -> bytes1 = row[1]
			:: else -> skip
			fi;
#ifdef NO_RECHECK
			atomic { check_bytes(l) }
#else
			atomic {
				if
				:: leaf_gen[l] == gen && leaf_prio[l] != 0 -> check_bytes(l)
				:: else -> goto next
				fi
			}
#endif
		:: else -> goto next
		fi;
#if UPDATES
		do
		:: atomic {
			SAME_LEAF(l) ->
			leaf_prio[l] = LEARNT;
			ADD_DELTA(l, LEARNT - old_prio);
			break
		   }
		:: else ->
			d_step { READ_LEAF(l) };
			if
			:: old_gen != gen -> break		/* overwritten: dropped */
#ifndef UPDATE_REVIVES
			:: old_gen == gen && old_prio == 0 -> break	/* no item: dropped */
#endif
			:: else -> skip
			fi
		od;
		flush();
#endif
next:		atomic { FORGET }
	:: else -> break
	od;
	running--
}

/* The queue view: read the row, then retire {gen, p} -> {gen, 0}; the CAS is the verification. */
proctype consumer()
{
	byte l, gen, old_gen, old_prio, bytes0, bytes1, takes;
	bit old_tag;
	bool wrong_bytes, taken_twice;
	short delta[2];

	do
	:: takes < TAKES ->
		takes++;
		atomic {
			select(l : 1 .. 2);
			READ_LEAF(l);
			if
			:: old_prio == 0 -> goto next
			:: else -> gen = old_gen
			fi
		};
		if
		:: l == 1 -> bytes0 = row[0]
		:: else -> bytes1 = row[1]
		fi;
		do
		:: atomic {
			SAME_LEAF(l) ->
			leaf_prio[l] = 0;
			ADD_DELTA(l, -old_prio);
			check_bytes(l);
			taken_twice = taken[l];
			assert(!taken_twice);
			taken[l] = true;
			break
		   }
		:: else ->
			d_step { READ_LEAF(l) };
			if
			:: old_gen != gen || old_prio == 0 -> break
			:: else -> skip
			fi
		od;
		flush();
next:		atomic { FORGET }
	:: else -> break
	od;
	running--
}

init
{
	bool inexact;

	atomic {
		run metadata_server();
		do
		:: running < WRITERS -> run writer(running); running++
		:: else -> break
		od;
#if DRAWS
		run learner();
		running++;
#endif
#if TAKES
		run consumer();
		running++;
#endif
#if MIGRATES
		run migrator();
		running++
#endif
	};
	/* All calls have returned, so all deltas are flushed. */
	atomic {
		running == 0 ->
#if KILLS == 0
		inexact = (sum[0] != leaf_prio[0] || sum[1] != leaf_prio[1] + leaf_prio[2]);
#endif
		assert(!inexact)
	}
}
