/*
 * draw.pml - draws from private sums (rule 6) beside updates and a rebuild (rule 7).
 *
 *   top	[ 0 | 1 ]	twice, by epoch parity; the sampler keeps a private copy
 *   mid	[ 0 | 1 ]	the level below, twice as well
 *   leaf	[ 0 1 | 2 ]	words {tag, priority}: leaves 0 and 1 under node 0, leaf 2 under 1
 *
 * A sampler draws and updates what it drew. Its copy of the tops may be as old as rule 6 allows:
 * it is read again in a draw if due, at another epoch, when a draw is lost, and whenever the model
 * likes (age, number of draws). A writer publishes leaf 2, then claims leaves 0 and 1, so that one item
 * is live and counted at any time. A rebuilder runs passes. Nobody dies: see rebuild.pml.
 *
 * Invariants:
 *	dead_drawn	a leaf of priority 0 is never drawn
 *	missed		a draw finds an item, unless its random number led elsewhere in some try
 *	drifted		a copy that is not due, of the current epoch, with no change by others since
 *			it was read, is the top
 *
 * Switches, each breaks one rule (see docs/models.md):
 *	NO_REDRAW  NO_REREAD  KEEP_EPOCH  ADD_BOTH  ADD_NONE
 */
#ifndef DRAWS
#define DRAWS 2			/* by the sampler */
#endif
#ifndef PASSES
#define PASSES 1		/* of the rebuilder */
#endif

#define CLIENTS 2
#define SAMPLER 0
#define WRITER 1
#define LEAVES 3
/* A try is lost at most by an old copy, by each pass, and by a claim meanwhile. */
#define TRIES (PASSES + 3)
#define NODE(l) ((l) / 2)
#define TAG(e) ((e) % 4)
#define ARR(e) ((e) & 1)
#define NORMAL 0
#define ZERO 1
#define DUAL 2
#define IDLE 200		/* pin: no delta and no call in progress */

byte epoch;
byte mode = NORMAL;
byte pin[CLIENTS] = IDLE;

byte leaf_tag[LEAVES];
byte leaf_prio[LEAVES] = 0;
short mid[4];			/* [2 * parity + node] */
short top[4];

bool published;			/* leaf 2 is live, and the sums have it */
bool by_others;			/* the current top was changed since the sampler's copy was read */

/* -------- changes, as in rebuild.pml -------- */

inline enter()
{
	view = epoch;
	do
	:: true ->
		pin[me] = view;
		atomic {
			if
			:: epoch == view -> view_mode = mode; break
			:: else -> view = epoch
			fi
		}
	od
}

/* Sets leaf l to new_prio if cond still holds of it, and fixes the deltas. */
inline change(cond)
{
	do
	:: true ->
		atomic {
			if
			:: !(cond) -> break
			:: (cond) && leaf_tag[l] == TAG(view) && view_mode == DUAL ->
				leaf_tag[l] = TAG(view + 1);
				delta[ARR(view)] = delta[ARR(view)] + new_prio - leaf_prio[l];
				delta[ARR(view + 1)] = delta[ARR(view + 1)] + new_prio;
				leaf_prio[l] = new_prio;
				break
			:: (cond) && leaf_tag[l] == TAG(view) && view_mode != DUAL ->
				delta[ARR(view)] = delta[ARR(view)] + new_prio - leaf_prio[l];
				leaf_prio[l] = new_prio;
				break
			:: (cond) && leaf_tag[l] == TAG(view + 1) && view_mode == DUAL ->
				delta[0] = delta[0] + new_prio - leaf_prio[l];
				delta[1] = delta[1] + new_prio - leaf_prio[l];
				leaf_prio[l] = new_prio;
				break
			:: else ->		/* outside my view: read the epoch again */
				view = epoch;
				view_mode = mode
			fi
		}
	od
}

/* An FAA on each level, for one array. */
inline flush(parity)
{
	if
	:: delta[parity] != 0 ->
		mid[2 * parity + NODE(l)] = mid[2 * parity + NODE(l)] + delta[parity];
		atomic {
			top[2 * parity + NODE(l)] = top[2 * parity + NODE(l)] + delta[parity];
			if
			:: me != SAMPLER -> by_others = true; delta[parity] = 0
			:: else -> skip
			fi
		}
	:: else -> skip
	fi
}

/* -------- the sampler -------- */

/* The copy and the epoch of its array. Negative sums count as 0. */
inline read_tops()
{
	atomic {
#ifndef KEEP_EPOCH
		seen = epoch;
#endif
		by_others = false;
		due = false
	};
	copy[0] = (top[2 * ARR(seen)] > 0 -> top[2 * ARR(seen)] : 0);
	copy[1] = (top[2 * ARR(seen) + 1] > 0 -> top[2 * ARR(seen) + 1] : 0)
}

/* One way down from the copy: found, or lost. */
inline descend()
{
	atomic {
		found = false;
		word0 = 0;
		word1 = 0;
		want = (published -> 1 : 0);	/* the node of an item that is live and counted */
		if
		:: copy[0] + copy[1] == 0 -> goto lost
		:: copy[0] > 0 -> node = 0; elsewhere = elsewhere || (want == 1 && copy[1] > 0)
		:: copy[1] > 0 -> node = 1; elsewhere = elsewhere || (want == 0 && copy[0] > 0)
		fi;
		expected = copy[node];
		select(r : 0 .. expected - 1)
	};
	atomic {
		total = mid[2 * ARR(seen) + node];
		if
		:: total <= 0 -> goto lost
		:: total > 0 && total != expected ->	/* drawn again within the node */
			expected = total;
#ifndef NO_REDRAW
			select(r : 0 .. total - 1)
#endif
		:: else -> skip
		fi
	};
	word0 = leaf_prio[2 * node];
	if
	:: node == 0 -> word1 = leaf_prio[1]
	:: else -> skip
	fi;
	atomic {
		total = word0 + word1;
		if
		:: total == 0 -> goto lost
#ifndef NO_REDRAW
		:: total > 0 && total != expected -> select(r : 0 .. total - 1)
#endif
		:: else -> skip
		fi;
		l = 2 * node + (r < word0 -> 0 : 1);
		dead_drawn = l >= LEAVES || (r < word0 -> word0 : word1) == 0;
		assert(!dead_drawn);
		found = true
	};
lost:	skip
}

/* The own changes of a top node, for the copy. */
inline add_own(parity)
{
	if
	:: delta[parity] == 0 -> skip
	:: delta[parity] != 0 ->
#if defined(ADD_BOTH)
		copy[NODE(l)] = copy[NODE(l)] + delta[parity]
#elif defined(ADD_NONE)
		skip
#else
		if
		:: ARR(seen) == parity && !due && copy[NODE(l)] + delta[parity] > 0 ->
			copy[NODE(l)] = copy[NODE(l)] + delta[parity]
		:: ARR(seen) == parity && !due && copy[NODE(l)] + delta[parity] <= 0 ->
			copy[NODE(l)] = 0
		:: else -> due = true
		fi
#endif
	fi;
	delta[parity] = 0
}

proctype sampler()
{
	byte me = SAMPLER;
	byte view, view_mode, seen, draws, tries, node, l, r, word0, word1, new_prio, want;
	short copy[2], delta[2], expected, total;
	bool due = true, found, elsewhere, dead_drawn, missed, drifted;

	do
	:: draws < DRAWS ->
		if
		:: due || seen != epoch -> read_tops()
		:: true -> read_tops()
		:: !due && seen == epoch -> skip
		fi;
		elsewhere = false;
		tries = 0;
		do
		:: true ->
			descend();
			if
			:: found || tries == TRIES -> break
			:: else -> tries++
			fi;
#ifndef NO_REREAD
			read_tops()
#endif
		od;
		missed = !found && !elsewhere;
		assert(!missed);
		if
		:: !found -> goto next
		:: else -> new_prio = 3 - (leaf_prio[l] > 0 -> leaf_prio[l] : 1)
		fi;
		enter();
		change(leaf_prio[l] > 0);	/* rule 2: of a live item only */
		flush(0);
		add_own(0);
		flush(1);
		add_own(1);
		atomic {
			drifted = !due && seen == epoch && !by_others &&
				(copy[0] != top[2 * ARR(seen)] || copy[1] != top[2 * ARR(seen) + 1]);
			assert(!drifted)
		};
		pin[me] = IDLE;
next:		draws++
	:: else -> break
	od
}

/* -------- the others -------- */

inline end_call()
{
	flush(0);
	flush(1);
	atomic { pin[me] = IDLE; view = 0; view_mode = 0 }
}

proctype writer()
{
	byte me = WRITER;
	byte view, view_mode, l, new_prio;
	short delta[2];

	enter();
	l = 2;
	new_prio = 1;
	change(true);
	end_call();
	published = true;
	enter();				/* claims the leaves of node 0 */
	new_prio = 0;
	l = 1;
	change(true);
	l = 0;
	change(true);
	end_call()
}

inline migrate(l)
{
	atomic {
		if
		:: leaf_tag[l] == TAG(view) ->
			leaf_tag[l] = TAG(view + 1);
			own[NODE(l)] = own[NODE(l)] + leaf_prio[l]
		:: else -> skip
		fi
	}
}

proctype rebuilder()
{
	byte view, passes, k;
	short own[2];

	do
	:: passes < PASSES ->
		view = epoch;
		mode = ZERO;
		pin[0] >= view;
		pin[1] >= view;
		for (k : 0 .. 1) {
			mid[2 * ARR(view + 1) + k] = 0;
			top[2 * ARR(view + 1) + k] = 0
		};
		mode = DUAL;
		for (k : 0 .. 2) { migrate(k) };
		for (k : 0 .. 1) {
			mid[2 * ARR(view + 1) + k] = mid[2 * ARR(view + 1) + k] + own[k];
			top[2 * ARR(view + 1) + k] = top[2 * ARR(view + 1) + k] + own[k]
		};
		atomic { epoch++; mode = NORMAL; passes++; own[0] = 0; own[1] = 0; k = 0 }
	:: else -> break
	od
}

init
{
	atomic {
		leaf_prio[0] = 1;
		leaf_prio[1] = 1;
		mid[0] = 2;
		top[0] = 2;
		run sampler();
		run writer();
		run rebuilder()
	}
}
