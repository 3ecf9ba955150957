/*
 * move.pml - one key of a heap goes to a part on another node, while clients put and get (ds/heap/move.c).
 *
 * A head word is its version and slot, 0 at first; MOVED = closed. An entry is the version that it holds, so
 * one that was reused is told from one that was not, as by its checksum. Any slot that nothing names may be
 * reused at any time. The server may be killed at every step, and goes on from what memory says; the new part
 * may be lost until it is whole. Ghosts are read by assertions only.
 *
 *	copy      the entry that the head names, then the head
 *	close     kept = head; CAS of the head to MOVED; if the head is not what was copied, copy again
 *	announce  clients may look for the new part, each when it does
 *	put       read the head; write an entry; CAS the head; a closed head: look for the new part
 *	get       read the head, then the entry; again if that is not the head's
 *
 * Switches, each breaks one rule:
 *	NO_COMPARE      what changed since it was copied is not copied again      went_back
 *	CLOSE_BY_STORE  the head is closed by a store                             went_back
 *	NO_KEPT         the word of a closed head is not kept                     went_back
 *	REUSE_CLOSED    what a closed head named is reused                        torn
 *	ANNOUNCE_EARLY  clients hear of the new part before all is closed         torn
 *	READ_CLOSED     gets go on by the word that was kept                      went_back
 */
#ifndef KILLS
#define KILLS 1
#endif
#ifndef LOSSES
#define LOSSES 1
#endif
#ifndef PUTS
#define PUTS 1			/* of each writer */
#endif
#ifndef READS
#define READS 1
#endif
#ifndef REUSES
#define REUSES 1
#endif

#define OLD 0
#define NEW 1
#define SLOTS 3			/* writer w writes to w and 2 */
#define MOVED 99
#define REUSED 50
#define WORD(version, slot) ((version) * SLOTS + (slot))
#define VERSION(word) ((word) / SLOTS)
#define SLOT(word) ((word) % SLOTS)
#define NAMED(word, slot) ((word) != MOVED && (word) != 0 && SLOT(word) == (slot))

byte head[2], kept, entry_old[SLOTS], entry_new[SLOTS];
bool announced, whole, taken[SLOTS];
byte kills, losses, reuses;

byte acked;			/* ghost: newest version that a call returned */
bool went_back, torn;

inline entry_get(part, slot, e) {
	if
	:: part == OLD -> e = entry_old[slot]
	:: else -> e = entry_new[slot]
	fi
}

inline entry_put(part, slot, e) {
	if
	:: part == OLD -> entry_old[slot] = e
	:: else -> entry_new[slot] = e
	fi
}

/* Ends when the client knows the new part; before the announcement it waits. */
inline look() {
	atomic { announced -> part = NEW }
}

active [2] proctype writer() {
	byte part = OLD, n, h, slot;

	do
	:: n < PUTS ->
		h = head[part];
		if
		:: h == MOVED -> look()
		:: else ->
			atomic {	/* a slot of its own that the head does not name */
				slot = _pid;
				if
				:: NAMED(h, slot) -> slot = 2
				:: else
				fi;
				if
				:: taken[slot] || NAMED(h, slot) || NAMED(head[part], slot) ||
				   (head[part] == MOVED && NAMED(kept, slot)) -> goto again
				:: else -> taken[slot] = true
				fi
			};
			entry_put(part, slot, VERSION(h) + 1);
			atomic {
				taken[slot] = false;
				if
				:: head[part] == h ->
					head[part] = WORD(VERSION(h) + 1, slot); n++;
					if
					:: VERSION(h) + 1 > acked -> acked = VERSION(h) + 1
					:: else
					fi
				:: else
				fi
			}
		fi;
again:		h = 0; slot = 0
	:: else -> break
	od
}

active proctype reader() {
	byte part = OLD, n, h, e, least;

	do
	:: n < READS ->
		least = acked;
retry:		h = head[part];
#ifdef READ_CLOSED
		if
		:: h == MOVED -> h = kept
		:: else
		fi;
#endif
		if
		:: h == MOVED -> look(); goto retry
		:: h == 0 -> e = 0
		:: else ->
			entry_get(part, SLOT(h), e);
			if
			:: e != VERSION(h) -> goto retry
			:: else
			fi
		fi;
		atomic {
			went_back = e < least;
			assert(!went_back);
			if
			:: e > acked -> acked = e
			:: else
			fi;
			n++; h = 0; e = 0; least = 0
		}
	:: else -> break
	od
}

/* The owners of extents reuse what no head names. */
active proctype reuser() {
	byte s;

	do
	:: reuses < REUSES ->
		select(s : 0 .. 2);
		atomic {
			if
			:: !taken[s] && !NAMED(head[OLD], s) &&
#ifndef REUSE_CLOSED
			   !(head[OLD] == MOVED && NAMED(kept, s)) &&
#endif
			   true -> entry_old[s] = REUSED; reuses++
			:: else -> skip
			fi
		}
	:: true -> break
	od
}

inline maybe_die() {
	if
	:: kills < KILLS -> kills++; goto begin
	:: losses < LOSSES ->
		atomic {
			losses++; head[NEW] = 0;
			entry_new[0] = 0; entry_new[1] = 0; entry_new[2] = 0
		};
		goto begin
	:: true
	fi
}

inline copy(word) {
	if
	:: word == head[NEW]
	:: else ->
		e = entry_old[SLOT(word)];
		entry_new[SLOT(word)] = e;
		maybe_die();
		head[NEW] = word
	fi
}

active proctype server() {
	byte h, e;

begin:
	h = head[OLD];
	if
	:: h == MOVED -> h = kept
	:: else
	fi;
	copy(h);
	maybe_die();
#ifdef ANNOUNCE_EARLY
	announced = true;
#endif
	do
	:: head[OLD] == MOVED -> break
	:: else ->
		h = head[OLD];
		if
		:: h == MOVED -> break
		:: else
		fi;
#ifndef NO_KEPT
		kept = h;
#endif
#ifdef CLOSE_BY_STORE
		head[OLD] = MOVED;
#else
		atomic {
			if
			:: head[OLD] == h -> head[OLD] = MOVED
			:: else
			fi
		};
#endif
	od;
	maybe_die();
#ifndef NO_COMPARE
	copy(kept);
#endif
	atomic {
		torn = head[NEW] != 0 && entry_new[SLOT(head[NEW])] != VERSION(head[NEW]);
		assert(!torn);
		whole = true;
		announced = true
	}
}
