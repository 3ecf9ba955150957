/*
 * copies.pml - one key of a heap with two copies, its owners, and copies that are lost and made anew.
 *
 * Copies 0 and 1 are whole; 2 is added after a loss, and filled. Two clients put, as owners; each may die
 * at every step. A reader reads the first copy of its line. The server loses copies, in any state of their
 * node: it may be unreachable, or its memory may stay mapped. Clients learn of that at any later time. A
 * put has a number, ver[] its version. Ghosts are read by assertions only.
 *
 *	put      the last copy of the line first, the primary last; entry and head of a copy are one chain;
 *	         each head is as the owner left it
 *	claim    the owner's word in all copies, unless a client is there that was not fenced; then the
 *	         marks once more
 *	settle   the newest head of the whole copies goes to the others
 *	fill     entry and head, later: all copies know that 2 is to be in the line; then it is whole
 *	lose     the memory is marked; clients are told
 *
 * Switches, each breaks one rule:
 *	PRIMARY_FIRST   heads move from the first copy to the last           went_back
 *	SKIP_SILENT     a put returns without a copy that does not answer    went_back
 *	NO_SETTLE       a new owner does not look at the heads               unequal
 *	NO_OWNER        a claim does not care for a live owner               split
 *	NO_RECHECK      a claim does not look at the marks again             unequal
 *	NO_FENCE        a lost copy is not marked before others serve        unequal
 *	NO_NEWEST       a claim does not look for copies that it missed      went_back
 *	FILL_BLIND      puts do not go to a bucket that was filled           unequal
 */
#ifndef KILLS
#define KILLS 0
#endif
#ifndef LOSSES
#define LOSSES 1
#endif
#ifndef PUTS
#define PUTS 2			/* attempts of each client */
#endif
#ifndef READS
#define READS 2
#endif

#define IDS 8
#define PRIMARY (!gone[0] -> 0 : (!gone[1] -> 1 : 2))

byte head[3];			/* number of a put; 0 = the first version */
byte ver[IDS];
byte owner[3];			/* 1 + client */
bool whole[3];
bool newest[3];			/* the copy knows that 2 is whole, or will be */
bool lost[3], marked[3], down[3];
bool added;			/* copy 2 is there */
bool dead[2], fenced[2];
byte kills, ids;

byte least;			/* ghost: version that some call has returned */
byte put_of[IDS];		/* ghost: 1 + the put that was seen as that version */

#if KILLS
inline maybe_die(w) {
	if
	:: kills < KILLS -> kills++; dead[w] = true; goto gone_for_good
	:: true
	fi
}
#else
#define maybe_die(w) skip
#endif

/* A call returns the put: not older than what was returned before the call began. */
inline returns(id, from) {
	went_back = ver[id] < from;
	assert(!went_back);
	split = put_of[ver[id]] != 0 && put_of[ver[id]] != id + 1;
	assert(!split);
	put_of[ver[id]] = id + 1;
	if
	:: ver[id] > least -> least = ver[id]
	:: else
	fi
}

/* A call begins: what it must not fall behind, and what the process learns of lost and new copies: a mark
   at once, the rest at any time. */
inline begin() {
	from = least; k = 0;
	do
	:: k < 2 && marked[k] && !gone[k] -> gone[k] = true; owns = false; k++
	:: k < 2 && lost[k] && !marked[k] && !gone[k] ->
		if
		:: gone[k] = true; owns = false
		:: true
		fi;
		k++
	:: k < 2 && !(marked[k] && !gone[k]) && !(lost[k] && !marked[k] && !gone[k]) -> k++
	:: k == 2 && added && gone[2] ->
		if
		:: gone[2] = false; owns = false
		:: true
		fi;
		break
	:: k == 2 && !(added && gone[2]) -> break
	od;
	k = 0
}

inline claim(w) {
	do
	:: k < 3 && !gone[k] && !down[k] ->
		atomic {
			if
			:: owner[k] == 0 -> owner[k] = w + 1
			:: owner[k] == w + 1 -> foreign = true
#ifdef NO_OWNER
			:: owner[k] == 2 - w ->
#else
			:: owner[k] == 2 - w && fenced[1 - w] ->
#endif
				foreign = true; owner[k] = w + 1
			:: else -> goto next
			fi;
			k++;
			maybe_die(w)
		}
	:: k < 3 && !gone[k] && down[k] -> goto next
	:: k < 3 && gone[k] -> k++
	:: k == 3 -> break
	od;
#ifndef NO_RECHECK
	if
	:: marked[0] && !gone[0] -> goto next
	:: marked[1] && !gone[1] -> goto next
	:: else
	fi
#endif
}

/* Brings the whole copies of the line to the newest head. */
inline settle(w) {
	atomic {
		best = PRIMARY; k = 0;
		do
		:: k < 3 && !gone[k] && whole[k] ->
			split = ver[head[k]] == ver[head[best]] && head[k] != head[best];
			assert(!split);
			if
			:: ver[head[k]] > ver[head[best]] -> best = k
			:: else
			fi;
			k++
		:: k < 3 && (gone[k] || !whole[k]) -> k++
		:: k == 3 -> break
		od;
		best = head[best]
	};
	do
	:: k > 0 && !gone[k - 1] && whole[k - 1] && head[k - 1] != best ->
		atomic {
			k--;
			if
			:: down[k] -> goto next
			:: else -> head[k] = best
			fi;
			maybe_die(w)
		}
	:: k > 0 && (gone[k - 1] || !whole[k - 1] || head[k - 1] == best) -> k--
	:: k == 0 -> break
	od
}

/* One step of filling copy 2: its only bucket, or the end. */
inline fill(w) {
	if
	:: !filled -> atomic { head[2] = known; filled = true; maybe_die(w) }
	:: filled ->
		k = 0;
		do
		:: k < 3 ->
			atomic {
				if
				:: gone[k] || down[k]
				:: else -> newest[k] = true
				fi;
				k++;
				maybe_die(w)
			}
		:: k == 3 -> break
		od;
		whole[2] = true
	fi
}

inline put(w) {
	atomic { ids++; id = ids; ver[id] = ver[known] + 1; todo = 3 };
	do
	:: todo > 0 ->
		atomic {
			todo--;
#ifdef PRIMARY_FIRST
			k = 2 - todo;
#else
			k = todo;
#endif
			if
#ifdef FILL_BLIND
			:: gone[k] || !whole[k]
#else
			:: gone[k] || (!whole[k] && !filled)
#endif
#ifdef SKIP_SILENT
			:: !gone[k] && down[k]
#else
			:: !gone[k] && down[k] -> owns = false; goto next	/* in doubt */
#endif
			:: else ->
				if
				:: head[k] == known -> head[k] = id
				:: else -> unequal = true; assert(!unequal)
				fi;
				maybe_die(w)
			fi
		}
	:: todo == 0 -> break
	od
}

inline release(w) {
	k = 3; owns = false;
	do
	:: k > 0 ->
		atomic {
			k--;
			if
			:: !gone[k] && !down[k] && owner[k] == w + 1 -> owner[k] = 0
			:: else
			fi;
			maybe_die(w)
		}
	:: k == 0 -> break
	od
}

proctype client(byte w) {
	bool gone[3], owns, filled, foreign, went_back, split, unequal;
	byte n, k, todo, known, id, best, from;

	gone[2] = true;
	do
	:: n < PUTS ->
		atomic { n++; begin() };
		if
		:: owns
		:: else ->
			claim(w);
			atomic {
				k = PRIMARY;
				if
#ifndef NO_NEWEST
				:: newest[k] && gone[2] -> gone[2] = false; goto next
#endif
				:: else
				fi
			};
			if
#ifndef NO_SETTLE
			:: foreign -> settle(w)
#endif
			:: else
			fi;
			atomic { known = head[PRIMARY]; filled = false; owns = true }
		fi;
		if
		:: !whole[PRIMARY] -> goto next
		:: whole[PRIMARY] && !gone[2] && !whole[2] && !down[2] -> fill(w)
		:: whole[PRIMARY] && (gone[2] || whole[2] || down[2])
		fi;
		put(w);
		atomic { known = id; from++; returns(id, from); maybe_die(w) };
		if
		:: release(w)
		:: true
		fi;
next:		atomic { from = 0; best = 0; todo = 0; k = 0; id = 0; foreign = false }
	:: else -> break
	od;
gone_for_good:
	skip
}

proctype reader() {
	bool gone[3], owns, went_back, split;
	byte n, k, from;

	gone[2] = true;
	do
	:: n < READS ->
		atomic { n++; begin(); k = PRIMARY };
		atomic {
			if
			:: down[k] || !whole[k]
			:: else -> returns(head[k], from)
			fi;
			from = 0; k = 0; owns = false
		}
	:: else -> break
	od
}

/* A node may be away before its copy is given up. */
inline lose(c) {
	if
	:: down[c] = true
	:: true
	fi;
#ifndef NO_FENCE
	marked[c] = true;
#endif
	lost[c] = true
}

proctype server() {
	byte first;

	if
	:: first = 0
	:: first = 1
	fi;
	if
	:: down[1 - first] = true; down[1 - first] = false	/* it comes back */
	:: true
	fi;
	lose(first);
#if LOSSES > 1
	added = true;
end:	whole[2];
	lose(1 - first)
#endif
}

proctype fence(byte w) {
end:	atomic { dead[w] -> fenced[w] = true }
}

init {
	atomic {
		whole[0] = true; whole[1] = true; put_of[0] = 1;
		run client(0); run client(1); run reader();
		if
		:: LOSSES > 0 -> run server()
		:: else
		fi;
		if
		:: KILLS > 0 -> run fence(0); run fence(1)
		:: else
		fi
	}
}
