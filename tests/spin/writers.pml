/*
 * writers.pml - one key of a heap with copies that several clients put at once (ds/heap/writers/). New copies (ADD)
 * are not built: decision 20.
 *
 * Copies 0 and 1 are whole, with THREE 2 is, too; else it is added after a loss, and filled. Two clients put;
 * each may die at every step, and nobody fences it before others go on. The server loses copies, whose memory
 * stays mapped; writers hear of that at any later time, readers at once (the mark). A put has a number, ver[]
 * its version. Ghosts are read by assertions only.
 *
 *	put      pin; is there a new copy; the heads from the last copy to the first; help; entry and CAS in the
 *	         last copy, which decides; entry, then CAS in those before it, the primary last
 *	help     what the last whole copy has, each copy gets: first the entry, then the head
 *	sweep    heads from the last copy to the first; an entry that none names is reused when all calls have
 *	         ended that had begun. It leaves out a copy when the others say that it is lost, which a put
 *	         looks at behind its pin, and all calls have ended that had begun before
 *	fill     all copies say that there will be a new one, and puts wait; calls that had begun end; all say that
 *	         there is one, which decides from now on; entry and head of the last whole copy; then it is whole
 *
 * Switches, each breaks one rule:
 *	PRIMARY_FIRST   the primary decides                                  split
 *	NO_HELP         a put does not bring the others forward              unequal
 *	HEAD_ALONE      help does not copy the entry                         torn
 *	HELP_FRONT      help begins with the primary                         went_back
 *	SKIP_SILENT     a put returns without a copy that does not answer    split
 *	NEWER_IS_DONE   after a loss a newer head counts as our success      split
 *	SWEEP_FRONT     the sweep begins with the primary                    torn
 *	SWEEP_PRIMARY   the sweep looks at the primary alone                 torn
 *	SWEEP_HEARS     the sweep leaves out what the server says is lost    torn
 *	SWEEP_AT_ONCE   ... what the others say is lost, without a wait      torn
 *	NO_PIN          a sweep does not wait for calls                      torn
 *	NO_BARRIER      the server does not wait for calls                   split
 *	OPEN_AT_ONCE    puts do not wait for the server's wait               split
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
#define READS 1
#endif
#ifndef SWEEPS
#define SWEEPS 0
#endif

#ifdef SKIP_SILENT
#define SKIPS true
#else
#define SKIPS false
#endif

#define IDS 6
#define NONE 9
#define SOON 1
#define OPEN 2
#define SERVER 2
#define SWEEPER 3
#define PRIMARY (!gone[0] -> 0 : (!gone[1] -> 1 : 2))
#define LAST (!gone[2] -> 2 : (!gone[1] -> 1 : 0))
#define WHOLE (!gone[2] && whole[2] -> 2 : (!gone[1] && whole[1] -> 1 : 0))
#define HAS(c, i) (entries[c] >> (i) & 1)

byte head[3];			/* number of a put; 0 = the first version */
byte entries[3];		/* bits of puts whose entry is complete there */
byte ver[IDS];
bool ended[IDS];		/* nobody goes on with the put, but helpers */
bool whole[3];
byte newest[3];			/* SOON: there will be copy 2, puts wait; OPEN: there is */
bool lost[3], down[3];
byte told[3];			/* bits of the lost copies that this one names; only sweeps need it */
byte lost_first = NONE, lost_next = NONE;
bool busy[4];			/* pins */
byte calls[4];			/* how many ended, modulo 4 */
bool dead[2];
byte kills, ids;

byte least;			/* ghost: version that some call has returned */
bool reused[IDS];		/* ghost */
byte put_of[IDS];		/* ghost: 1 + the put that was seen as that version */

#if KILLS
inline maybe_die(w) {
	if
	:: kills < KILLS -> kills++; dead[w] = true; busy[w] = false; ended[id] = true; goto gone_for_good
	:: true
	fi
}
#else
#define maybe_die(w) skip
#endif

inline returns(i, from) {
	went_back = ver[i] < from;
	assert(!went_back);
	split = put_of[ver[i]] != 0 && put_of[ver[i]] != i + 1;
	assert(!split);
	put_of[ver[i]] = i + 1;
	if
	:: ver[i] > least -> least = ver[i]
	:: else
	fi
}

inline unpin(w) {
	busy[w] = false; calls[w] = (calls[w] + 1) % 4
}

/* Waits until the calls have ended that had begun. */
inline quiesce(me) {
	atomic {
		seen[0] = (busy[0] -> calls[0] : NONE);
		seen[1] = (busy[1] -> calls[1] : NONE);
		seen[2] = (busy[2] -> calls[2] : NONE);
		seen[3] = (busy[3] -> calls[3] : NONE)
	};
	atomic { seen[0] == NONE || !busy[0] || calls[0] != seen[0] };
	atomic { seen[1] == NONE || !busy[1] || calls[1] != seen[1] };
	atomic { me == SERVER || seen[2] == NONE || !busy[2] || calls[2] != seen[2] };
	atomic { me == SWEEPER || seen[3] == NONE || !busy[3] || calls[3] != seen[3] }
}

/* A process learns of losses in their order, at any time. */
inline hear() {
	if
	:: lost_first != NONE && lost[lost_first] -> gone[lost_first] = true
	:: true
	fi;
	if
	:: lost_next != NONE && lost[lost_next] && gone[lost_first] -> gone[lost_next] = true
	:: true
	fi
}

#define NAMES(k, c) (told[k] >> (c) & 1)

/* Some copy of the line says that c is lost; all do. */
#define TOLD(c) ((!gone[0] && NAMES(0, c)) || (!gone[1] && NAMES(1, c)) || (!gone[2] && NAMES(2, c)))
#define ALL_TOLD(c) \
	((c == 0 || gone[0] || NAMES(0, c)) && (c == 1 || gone[1] || NAMES(1, c)) && \
	 (c == 2 || gone[2] || NAMES(2, c)))

/* All copies that are not lost say it. */
#define SAYS(what) (gone[2] && ((!gone[0] && newest[0] == what) || (!gone[1] && newest[1] == what)))

inline look_for_new() {
	if
	:: SAYS(OPEN) -> gone[2] = false
	:: else
	fi
}

inline look_for_lost() {
#if SWEEPS
	if
	:: lost_first != NONE && TOLD(lost_first) -> gone[lost_first] = true
	:: else
	fi
#else
	skip
#endif
}

/* Copy k gets the put d of the last whole copy, or already has it. */
inline help(w) {
	h = head[k];
	if
	:: down[k] -> goto next
	:: !down[k] && h == d
	:: !down[k] && h != d && ver[h] >= ver[d] -> goto next		/* others went on */
	:: !down[k] && h != d && ver[h] < ver[d] ->
#ifndef HEAD_ALONE
		atomic {
			torn = reused[d];
			assert(!torn);
			entries[k] = entries[k] | (1 << d);
			maybe_die(w)
		};
#endif
		atomic {
			if
			:: down[k] || head[k] != h -> goto next
			:: else -> head[k] = d
			fi;
			maybe_die(w)
		}
	fi
}

inline level(w) {
	d = head[WHOLE];
	if
	:: down[WHOLE] -> goto next
	:: else
	fi;
#ifdef NO_HELP
	if
	:: !gone[2] && !whole[2] -> k = 2; help(w)
	:: else
	fi;
	k = 0
#else
	n_left = 3;
	do
	:: n_left > 0 ->
		n_left--;
#ifdef HELP_FRONT
		k = 2 - n_left;
#else
		k = n_left;
#endif
		if
		:: gone[k]
		:: else -> help(w)
		fi
	:: n_left == 0 -> break
	od;
	k = 0
#endif
}

/* CAS of the head of copy k in front of the one that decided. */
inline follow(w) {
	atomic {
		if
		:: down[k] && SKIPS
		:: down[k] && !SKIPS -> ended[id] = true; goto next		/* in doubt */
		:: else -> entries[k] = entries[k] | (1 << id)
		fi;
		maybe_die(w)
	};
	atomic {
		if
		:: (down[k] || !HAS(k, id)) && SKIPS
		:: down[k] && !SKIPS -> ended[id] = true; goto next
		:: !down[k] && HAS(k, id) && head[k] == d -> head[k] = id
		:: !down[k] && head[k] != d && head[k] == id
		:: !down[k] && head[k] != d && head[k] != id && ver[head[k]] == ver[id] ->
			ended[id] = true; goto next		/* not put */
		:: !down[k] && head[k] != d && ver[head[k]] > ver[id] -> newer = true
		:: !down[k] && head[k] != d && ver[head[k]] < ver[id] -> unequal = true; assert(!unequal)
		fi;
		maybe_die(w)
	}
}

inline put(w) {
	atomic {
		id = ids + 1; ids++; ver[id] = ver[d] + 1;
#ifdef PRIMARY_FIRST
		last = PRIMARY;
#else
		last = LAST;
#endif
		if
		:: down[last] -> ended[id] = true; goto next
		:: !down[last] && head[last] == d ->
			entries[last] = entries[last] | (1 << id); head[last] = id
		:: !down[last] && head[last] != d -> ended[id] = true; goto next
		fi;
		maybe_die(w)
	};
	n_left = 3;
	do
	:: n_left > 0 ->
		n_left--;
#ifdef PRIMARY_FIRST
		k = 2 - n_left;
#else
		k = n_left;
#endif
		if
		:: gone[k] || k == last
		:: else -> follow(w)
		fi
	:: n_left == 0 -> break
	od;
	atomic {
		ended[id] = true; k = 0;
		if
#ifndef NEWER_IS_DONE
		:: newer && ((!gone[0] && lost[0]) || (!gone[1] && lost[1]) || (!gone[2] && lost[2])) ->
			goto next				/* in doubt */
#endif
		:: else -> returns(id, from)
		fi
	}
}

proctype client(byte w) {
	bool gone[3], went_back, split, unequal, torn, newer;
	byte n, n_left, k, id, d, h, from, last;

#ifndef THREE
	gone[2] = true;
#endif
	do
	:: n < PUTS ->
		atomic { n++; from = least; hear() };
		busy[w] = true;
		atomic {
			look_for_new();
			look_for_lost();
			if
			:: SAYS(SOON) || (gone[0] && gone[1] && gone[2]) -> goto next	/* waits */
			:: else
			fi;
			maybe_die(w)
		};
		level(w);
		put(w);
next:		atomic {
			unpin(w); newer = false;
			k = 0; id = 0; d = 0; h = 0; from = 0; last = 0; n_left = 0
		}
	:: else -> break
	od;
gone_for_good:
	skip
}

/* Reads the first copy that is not lost; marks are seen at once. */
proctype reader() {
	bool went_back, split, torn;
	byte n, k, from;

	do
	:: n < READS ->
		atomic { n++; from = least; k = (!lost[0] -> 0 : (!lost[1] -> 1 : 2)) };
		atomic {
			if
			:: down[k] || !whole[k] || (lost[k] && !HAS(k, head[k]))	/* looks again */
			:: else ->
				torn = !HAS(k, head[k]);
				assert(!torn);
				returns(head[k], from)
			fi;
			from = 0; k = 0
		}
	:: else -> break
	od
}

inline lose(c) {
	if
	:: lost_first == NONE -> lost_first = c
	:: else -> lost_next = c
	fi;
	if
	:: down[c] = true
	:: true
	fi;
	lost[c] = true
#if SWEEPS
	;
	told[(c + 1) % 3] = told[(c + 1) % 3] | (1 << c);
	told[(c + 2) % 3] = told[(c + 2) % 3] | (1 << c)
#endif
}

#define LIVE (!lost[2] && whole[2] -> 2 : (!lost[1] -> 1 : 0))

proctype server() {
	byte first, d, h, k, seen[4];

	if
	:: first = 0
	:: first = 1
#ifdef THREE
	:: first = 2
#endif
	fi;
	if
	:: down[1 - first % 2] = true; down[1 - first % 2] = false	/* it comes back */
	:: true
	fi;
	lose(first);
#ifdef ADD
	k = 1 - first;
#ifndef OPEN_AT_ONCE
	newest[k] = SOON;
#else
	newest[k] = OPEN;
#endif
#ifndef NO_BARRIER
	quiesce(SERVER);
#endif
	newest[k] = OPEN;
	busy[SERVER] = true;
	do
	:: atomic {
		d = head[LIVE];
		h = head[2];
		if
		:: h == d && HAS(2, d) -> break
		:: h != d && ver[h] >= ver[d] -> break
		:: else
		fi
	   };
	   entries[2] = entries[2] | (1 << d);
	   atomic {
		if
		:: head[2] == h -> head[2] = d
		:: else
		fi
	   }
	od;
	atomic { whole[2] = true; unpin(SERVER) };
#if LOSSES > 1
	lose(k)
#endif
#endif
}

/* Reuses the entry of a put that has ended. */
proctype sweeper() {
	byte i, k, seen[4];
	bool gone[3], named, torn;

#ifndef THREE
	gone[2] = true;
#endif
	atomic {
		if
		:: ended[1] -> i = 1
		:: ended[2] -> i = 2
		:: ended[3] -> i = 3
		:: true -> goto none
		fi;
		busy[SWEEPER] = true;
#ifdef SWEEP_HEARS
		hear()
#endif
	};
	if
	:: lost_first != NONE && ALL_TOLD(lost_first) ->
#ifndef SWEEP_AT_ONCE
		quiesce(SWEEPER);
#endif
		gone[lost_first] = true
	:: else
	fi;
	atomic {
		look_for_new();
		if
		:: SAYS(SOON) -> goto held
		:: else
		fi
	};
	k = 3;
	do
	:: k > 0 ->
		atomic {
			k--;
			if
			:: down[k] && !gone[k] -> goto held
			:: else
			fi;
#ifdef SWEEP_FRONT
			named = named || (!gone[2 - k] && head[2 - k] == i)
#elif defined(SWEEP_PRIMARY)
			named = named || (k == PRIMARY && head[k] == i)
#else
			named = named || (!gone[k] && head[k] == i)
#endif
		}
	:: k == 0 -> break
	od;
	unpin(SWEEPER);
	if
	:: named -> goto none
	:: else
	fi;
#ifndef NO_PIN
	quiesce(SWEEPER);
#endif
	atomic {
		torn = (!lost[0] && head[0] == i) || (!lost[1] && head[1] == i) ||
		       (!lost[2] && whole[2] && head[2] == i);
		assert(!torn);
		reused[i] = true;
		entries[0] = entries[0] & ~(1 << i);
		entries[1] = entries[1] & ~(1 << i);
		entries[2] = entries[2] & ~(1 << i)
	};
	goto none;
held:	unpin(SWEEPER);
none:	skip
}

init {
	atomic {
		whole[0] = true; whole[1] = true; put_of[0] = 1;
		entries[0] = 1; entries[1] = 1;
#ifdef THREE
		whole[2] = true; entries[2] = 1;
#endif
		run client(0); run client(1); run reader();
		if
		:: LOSSES > 0 -> run server()
		:: else
		fi;
		if
		:: SWEEPS > 0 -> run sweeper()
		:: else
		fi
	}
}
