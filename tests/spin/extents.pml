/*
 * extents.pml - the words of one extent of a part with two copies into which several clients put
 * (ds/heap/writers/extents.c).
 *
 * A client takes the words from the last copy on, each from one that names nobody, then looks whether a copy of its
 * line is lost; it puts an entry, or none, and gives the words back from the first copy on once nothing is in use. Two
 * clients do so, and may die at every step. The server loses a copy, whose memory stays mapped, and settles each copy
 * of a dead client by itself. A client hears of the loss at any later time, and says so in the other copy before it
 * goes on. Ghosts are read by assertions only.
 *
 * Switches, each breaks one rule:
 *	NO_LOOK      a claim does not look for a loss when it has all words        entries_lost
 *	SETTLE_EARLY a client is settled before its calls have ended                two_owners
 */
#ifndef KILLS
#define KILLS 1
#endif
#ifndef CALLS
#define CALLS 2			/* of each client */
#endif

#define FREE 0			/* else 1 + number of a client */
#define ORPHAN 3
#define LAST (!gone[1] -> 1 : 0)

byte own[2];			/* the word in each copy; its sequence is left out: a claim does not rely on it */
bool has[2];			/* the copy has the header of an entry that is in use */
bool lost[2], told[2];
bool dead[2], ended[2];
byte kills;
bool owns[2], filled;		/* ghosts: the client uses the extent; an entry is in use */

#define maybe_die(w) \
	if \
	:: kills < KILLS -> kills++; dead[w] = true; goto gone_for_good \
	:: true \
	fi

inline begin_to_own(w) {
	two_owners = owns[1 - w];
	assert(!two_owners);
	/* A free extent has no entries; those of an orphan are found by their headers in the last copy. */
	entries_lost = filled && (from == FREE || !has[LAST]);
	assert(!entries_lost);
	owns[w] = true
}

inline hear() {
	if
	:: lost[0] && !gone[0] -> gone[0] = true; told[0] = true
	:: lost[1] && !gone[1] -> gone[1] = true; told[1] = true
	:: true
	fi
}

proctype client(byte w) {
	bool gone[2], two_owners, entries_lost, got;
	byte n, from, had;

	do
	:: n < CALLS ->
		atomic { n++; hear(); maybe_die(w) };
		atomic {
			from = own[LAST];
			if
			:: from != FREE && from != ORPHAN -> goto next
			:: else -> own[LAST] = 1 + w
			fi;
			maybe_die(w)
		};
		got = true;
		if
		:: LAST == 1 && !gone[0] ->
			atomic {
				had = own[0];
				if
				:: had == FREE || (had == ORPHAN && from == ORPHAN) -> own[0] = 1 + w
				:: else -> got = false
				fi;
				maybe_die(w)
			}
		:: else
		fi;
#ifndef NO_LOOK
		atomic {
			if
			:: got && ((told[0] && !gone[0]) || (told[1] && !gone[1])) ->
				if
				:: LAST == 1 && !gone[0] && own[0] == 1 + w -> own[0] = had
				:: else
				fi;
				got = false
			:: else
			fi;
			maybe_die(w)
		};
#endif
		if
		:: !got -> atomic {
			if
			:: own[LAST] == 1 + w -> own[LAST] = from
			:: else
			fi;
			goto next
		   }
		:: else
		fi;
		atomic { begin_to_own(w); maybe_die(w) };
		if
		:: atomic {
			filled = true;
			has[0] = has[0] || !gone[0];
			has[1] = has[1] || !gone[1];
			maybe_die(w);
			goto kept	/* an entry stays in use: the extent is given back as an orphan */
		   }
		:: atomic { filled = false; has[0] = false; has[1] = false; maybe_die(w) }
		fi;
		owns[w] = false;
		if
		:: !gone[0] -> atomic {
			if
			:: own[0] == 1 + w -> own[0] = FREE
			:: else
			fi;
			maybe_die(w)
		   }
		:: else
		fi;
		if
		:: !gone[1] -> atomic {
			if
			:: own[1] == 1 + w -> own[1] = FREE
			:: else
			fi;
			maybe_die(w)
		   }
		:: else
		fi;
		goto next;
kept:		atomic { owns[w] = false; maybe_die(w) };
		/* Settles itself: each copy. */
		atomic {
			if
			:: own[0] == 1 + w && !gone[0] -> own[0] = ORPHAN
			:: else
			fi;
			maybe_die(w)
		};
		atomic {
			if
			:: own[1] == 1 + w && !gone[1] -> own[1] = ORPHAN
			:: else
			fi;
			maybe_die(w)
		};
next:		atomic { from = 0; had = 0; got = false }
	:: else -> break
	od;
gone_for_good:
	owns[w] = false;
	ended[w] = true
}

/* After the fence of a dead client: in each copy by itself, in any order. */
proctype settler(byte w) {
#ifdef SETTLE_EARLY
	true;
#else
	if
	:: ended[w] && dead[w]
	:: ended[w] && !dead[w] -> goto alive
	fi;
#endif
	if
	:: own[0] = (own[0] == 1 + w -> ORPHAN : own[0]);
	   own[1] = (own[1] == 1 + w -> ORPHAN : own[1])
	:: own[1] = (own[1] == 1 + w -> ORPHAN : own[1]);
	   own[0] = (own[0] == 1 + w -> ORPHAN : own[0])
	fi;
alive:	skip
}

proctype loss() {
	if
	:: lost[0] = true
	:: lost[1] = true
	:: true
	fi
}

init {
	atomic { run client(0); run client(1); run settler(0); run settler(1); run loss() }
}
