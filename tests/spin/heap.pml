/*
 * heap.pml - version chains of one key, and when slots are reused; a writer may die at every step.
 *
 * Two writers own two slots each and put versions; a reader pins and reads. A slot has two words, so
 * an entry can be torn. The head word has the slot and a version modulo 2: so small that an equal word
 * says nothing by itself, which pins have to make up for. Ghosts are read by assertions only.
 *
 *	put      take a free slot, else collect; pin; read the head; write the entry; CAS the head; unpin
 *	collect  own slots that the head does not name wait with a tag, the epoch read after the head;
 *	         advance the epoch; read all pins; free what has a tag below all of them
 *	fence    of a dead writer: its pin goes, its slots are the other one's, who finds out by the head
 *	hold     with HOLDS the reader's pin becomes, by one store, the slot that it holds; it reads later
 *
 * Switches, each breaks one rule:
 *	NO_PIN          a put does not pin                            aba
 *	READER_NO_PIN   a reader does not pin, and has no checksum    torn
 *	PIN_LATE        the pin is stored after the head was read     torn
 *	TAG_FIRST       the epoch is read before the heads            torn
 *	FREE_AT_ONCE    nobody is waited for                          torn
 *	FENCE_BY_TIME   a writer is fenced that is alive              torn
 *	HOLD_LATE       a hold without a pin before it                torn
 *	HOLD_APART      the pin is withdrawn before the hold is there torn
 *	HOLD_IGNORED    collect takes what is held                    torn
 */
#ifndef KILLS
#define KILLS 0
#endif
#ifndef PUTS
#define PUTS 3			/* of each writer */
#endif
#ifndef READS
#define READS 1
#endif

#define SLOTS 4
#define NONE 9
#define READER 2		/* its pin; writers have 0 and 1 */

mtype = { FREE, TAKEN, LIVE, LIMBO };

byte head_slot, head_version;
byte word0[SLOTS], word1[SLOTS];
mtype state[SLOTS] = FREE;	/* private to the owner */
byte tag[SLOTS], owner[SLOTS];
byte epoch = 1;
byte pin[3];			/* 0 = idle */
byte held = NONE;		/* in the word of the reader's pin */
bool dead[2], fenced[2];
byte kills;

byte changes;			/* ghost: how often the head changed */
byte current = 1;		/* ghost: the entry that the head's last CAS published */
byte ids = 1;

inline maybe_die(w) {
	if
	:: kills < KILLS -> kills++; dead[w] = true; goto gone
	:: true
	fi
}

inline find_free(w, s) {
	atomic {
		s = NONE; i = 0;
		do
		:: i < SLOTS && owner[i] == w && state[i] == FREE -> s = i; state[i] = TAKEN; break
		:: i < SLOTS && !(owner[i] == w && state[i] == FREE) -> i++
		:: i == SLOTS -> break
		od;
		i = 0
	}
}

inline look_at_pin(p) {
	if
	:: pin[p] && pin[p] < least -> least = pin[p]
	:: else
	fi
}

inline collect(w) {
#ifdef TAG_FIRST
	e = epoch;
#endif
	do
	:: i < SLOTS ->
		atomic {
			if
			:: owner[i] == w && state[i] == LIVE && head_slot != i ->
				state[i] = LIMBO; tag[i] = 0
			:: else
			fi;
			i++
		}
	:: else -> break
	od;
#ifndef TAG_FIRST
	e = epoch;
#endif
	atomic {
		i = 0;
		do
		:: i < SLOTS ->
			if
			:: owner[i] == w && state[i] == LIMBO && tag[i] == 0 -> tag[i] = e
			:: else
			fi;
			i++
		:: else -> break
		od
	};
	atomic {
		if
		:: epoch == e -> epoch++
		:: else		/* the other one advanced it */
		fi
	};
	least = epoch;
#ifdef FREE_AT_ONCE
	least = 100;
#else
	look_at_pin(1 - w);
#ifdef HOLDS
	atomic { look_at_pin(READER); kept = held };
#else
	look_at_pin(READER);
#endif
#endif
#ifdef HOLD_IGNORED
	kept = NONE;
#endif
	atomic {
		i = 0;
		do
		:: i < SLOTS ->
			if
			:: owner[i] == w && state[i] == LIMBO && tag[i] < least && i != kept ->
				state[i] = FREE
			:: else
			fi;
			i++
		:: else -> break
		od;
		i = 0
	}
}

proctype writer(byte w) {
	byte n, s, i, e, least, kept = NONE, seen_slot, seen_version, seen_changes, id;
	bool aba;

	do
	:: n < PUTS ->
		n++;
		find_free(w, s);
		if
		:: s == NONE -> collect(w); find_free(w, s)
		:: else
		fi;
		if
		:: s == NONE -> goto next	/* held back by a pin */
		:: else
		fi;
		maybe_die(w);
#ifndef NO_PIN
		e = epoch;
		pin[w] = e;
#endif
		atomic {
			seen_slot = head_slot; seen_version = head_version; seen_changes = changes
		};
		maybe_die(w);
		atomic { ids++; id = ids; word0[s] = id };
		maybe_die(w);
		word1[s] = id;
		maybe_die(w);
		atomic {
			if
			:: head_slot == seen_slot && head_version == seen_version ->
				aba = changes != seen_changes;
				assert(!aba);
				aba = false;
				head_slot = s; head_version = 1 - head_version;
				changes++; current = id; state[s] = LIVE
			:: else -> state[s] = FREE
			fi
		};
		maybe_die(w);
		pin[w] = 0;
next:		skip
	:: else -> break
	od;
gone:	skip
}

proctype reader() {
	byte n, e, slot, want, got0, got1;
	bool torn;

	do
	:: n < READS ->
		n++;
#if !defined(READER_NO_PIN) && !defined(PIN_LATE) && !defined(HOLD_LATE)
		e = epoch;
		pin[READER] = e;
#endif
		atomic { slot = head_slot; want = current };
#ifdef PIN_LATE
		e = epoch;
		pin[READER] = e;
#endif
#ifdef HOLDS
#ifdef HOLD_APART
		pin[READER] = 0;
#endif
		atomic { held = slot; pin[READER] = 0 };
#endif
		got0 = word0[slot];
		got1 = word1[slot];
		torn = got0 != want || got1 != want;
		assert(!torn);
#ifdef HOLDS
		held = NONE
#else
		pin[READER] = 0
#endif
	:: else -> break
	od
}

/* The server: after the fence the slots of the dead writer are the other one's. */
proctype server() {
	byte w, i;

end:	do
	:: !fenced[w] &&
#ifdef FENCE_BY_TIME
		true
#else
		dead[w]
#endif
		->
		atomic {
			fenced[w] = true; pin[w] = 0; i = 0;
			do
			:: i < SLOTS ->
				if
				:: owner[i] == w -> owner[i] = 1 - w; state[i] = LIVE
				:: else
				fi;
				i++
			:: else -> break
			od
		};
		break
	:: w == 0 && !dead[0] -> w = 1
	:: w == 1 && !dead[1] -> w = 0
	od
}

init {
	atomic {
		owner[2] = 1; owner[3] = 1;
		word0[0] = 1; word1[0] = 1; state[0] = LIVE;
		run writer(0); run writer(1); run reader();
		if
		:: KILLS > 0 -> run server()
		:: else
		fi
	}
}
