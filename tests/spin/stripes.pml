/*
 * stripes.pml - one key of a heap whose value lies in stripes: two client slots put, others read, and complete the
 * intents of a client that is cut off (client/kv/stripe.c, ds/heap/stripe/settle.c).
 *
 * A value has one stripe, under a hidden key (number) of its writer's slot, in another part than the key and the
 * intents. Keys are abstract: a put or a delete is one step, and makes a version. The client of slot 0 may be cut off
 * at any time, in the two parts one after the other; until then it goes on, wherever it is let. Then a third client gets
 * the slot, and a fourth one, the taker, completes what it finds. Ghosts are read by assertions only.
 *
 *	put     look at home | a number that has no value | the intent | the stripe | CAS at home | settle
 *	settle  the intent; others see that its slot is free still | home | what home does not name goes, in the version that was read: the new stripe,
 *	        if the intent is there still; the old one in the version that its manifest named | the intent
 *	get     home | the stripe; another version: again, if home has another one, too
 *
 * Switches, each breaks one rule:
 *	CHECK_FIRST   others look whether the slot is free before they read its intent      left_over
 *	SETTLE_EARLY  a slot is settled when it is cut off at the stripes, not yet at home  left_over
 *	DELETE_BLIND  the old stripe is deleted in whatever version it has                  lost
 *	NO_RECHECK    the intent is not looked at again behind the look at the new stripe   lost
 *	USE_AGAIN     the number that home names is written to                              lost
 *	NO_VERSION    readers do not compare the version of the stripe                      torn
 *	NO_OLD        the intent does not say what the put replaces                         left_over
 *	NO_INTENT     there is none                                                         left_over
 *	OWN_LATER     a client puts before it settles the intent of its slot                left_over
 */
#ifndef PUTS
#define PUTS 1			/* of client 0; client 2 puts once */
#endif
#ifndef OTHER_PUTS
#define OTHER_PUTS PUTS		/* of client 1 */
#endif
#ifndef READS
#define READS 1
#endif
#ifndef CUTS
#define CUTS 1
#endif

#define NONE 9
#define SLOT(c) ((c) == 2 -> 0 : (c))
#define NUMBERS 2
#define HIDDEN(slot, n) ((slot) * NUMBERS + (n))

/* The key: its version; the stripe that it names, in its version; its value. */
byte hv, href = NONE, hrv, hval;
/* Hidden keys of stripes: version, whether there is a value, the value. */
byte dv[4], dval[4];
bool dx[4];
/* Intents, by slot. */
bool ix[2];
byte iv[2], inew[2], iold[2], ioldv[2], irep[2];
bool cut_home[4], cut_data[4];	/* of each client; 3 is the taker */
bool decided;			/* client 0 is cut off, or will never be */
bool given;			/* client 2 has the slot */
byte values, ended;
bool lost, torn, left_over;

#define HOME_IS_CUT cut_home[c]
#define DATA_IS_CUT cut_data[c]
#define FREE0 (cut_home[0] && cut_data[0] && !given)
#ifdef SETTLE_EARLY
#define SEEN_FREE (cut_data[0] && !given)
#else
#define SEEN_FREE FREE0
#endif

inline delete(k, version) {
	if
	:: dx[k] && dv[k] == version -> dx[k] = false; dv[k]++; dval[k] = 0
	:: else
	fi
}

/* Completes the intent of the slot w. */
inline settle(w) {
	atomic {
		if
		:: DATA_IS_CUT -> goto dead
		:: !DATA_IS_CUT && !ix[w] -> goto settled
		:: else -> i = iv[w]; fresh = inew[w]; old = iold[w]; oldv = ioldv[w]; rep = irep[w]
		fi
	};
#ifndef CHECK_FIRST
	if
	:: c == 3 && !SEEN_FREE -> goto settled
	:: else
	fi;
#endif
	atomic {
		if
		:: HOME_IS_CUT -> goto dead
		:: else -> named = (href == fresh && fresh != NONE); keeps = (hv == rep)
		fi
	};
	if
	:: !named && fresh != NONE ->
		atomic {
			if
			:: DATA_IS_CUT -> goto dead
			:: else -> version = (dx[fresh] -> dv[fresh] : 0)
			fi
		};
#ifndef NO_RECHECK
		atomic {
			if
			:: DATA_IS_CUT -> goto dead
			:: !DATA_IS_CUT && !(ix[w] && iv[w] == i) -> goto settled
			:: else
			fi
		};
#endif
		atomic {
			if
			:: DATA_IS_CUT -> goto dead
			:: else -> delete(fresh, version)
			fi
		}
	:: else
	fi;
	if
	:: !keeps && old != NONE ->
		atomic {
			if
			:: DATA_IS_CUT -> goto dead
			:: else ->
#ifdef DELETE_BLIND
				oldv = dv[old];
#endif
				delete(old, oldv)
			fi
		}
	:: else
	fi;
	atomic {
		if
		:: DATA_IS_CUT -> goto dead
		:: else ->
			if
			:: ix[w] && iv[w] == i -> ix[w] = false; iv[w]++
			:: else
			fi
		fi
	};
settled: atomic { fresh = NONE; old = NONE; oldv = 0; rep = 0; i = 0; version = 0; named = false; keeps = false }
}

inline put() {
	atomic {
		if
		:: HOME_IS_CUT -> goto dead
		:: else -> h = hv; r = href; rv = hrv
		fi
	};
	atomic {
		if
		:: DATA_IS_CUT -> goto dead
#ifdef USE_AGAIN
		:: else -> k = HIDDEN(s, 0)
#else
		:: !DATA_IS_CUT && !dx[HIDDEN(s, 0)] -> k = HIDDEN(s, 0)
		:: !DATA_IS_CUT && dx[HIDDEN(s, 0)] && !dx[HIDDEN(s, 1)] -> k = HIDDEN(s, 1)
		:: else -> goto dead	/* no number is free: other stripes wait for their deletion */
#endif
		fi
	};
#ifndef NO_INTENT
	atomic {
		if
		:: DATA_IS_CUT -> goto dead
		:: else ->
			ix[s] = true; iv[s]++; inew[s] = k; irep[s] = h;
#ifdef NO_OLD
			iold[s] = NONE
#else
			iold[s] = r; ioldv[s] = rv
#endif
		fi
	};
#endif
	atomic {
		if
		:: DATA_IS_CUT -> goto dead
		:: else -> values++; value = values; dv[k]++; dx[k] = true; dval[k] = value; kv = dv[k]
		fi
	};
	atomic {
		if
		:: HOME_IS_CUT -> goto dead
		:: else ->
			if
			:: hv == h -> hv++; href = k; hrv = kv; hval = value
			:: else
			fi
		fi
	};
	atomic { h = 0; r = NONE; rv = 0; k = 0; kv = 0; value = 0 }
}

#define LOCALS \
	byte i, fresh = NONE, old = NONE, oldv, rep, version; \
	bool named, keeps

proctype client(byte c; byte s; byte puts) {
	LOCALS;
	byte h, r = NONE, rv, k, kv, value, n;

	atomic {	/* client 2 gets the slot of client 0 */
		c != 2 || decided;
		if
		:: c == 2 && !FREE0 -> goto dead
		:: c == 2 && FREE0 -> given = true
		:: else
		fi
	};
#ifdef OWN_LATER
	goto begin;
#endif
again:	settle(s);
begin:
	if
	:: n < puts -> put(); n++; goto again
	:: else
	fi;
dead:	atomic {
		ended++; i = 0; fresh = NONE; old = NONE; oldv = 0; rep = 0; version = 0; named = false; keeps = false;
		h = 0; r = NONE; rv = 0; k = 0; kv = 0; value = 0; n = 0
	}
}

proctype taker() {
	LOCALS;
	byte c = 3;

	decided;
#ifdef CHECK_FIRST
	if
	:: !SEEN_FREE -> goto dead
	:: else
	fi;
#endif
	settle(0);
dead:	atomic {
		ended++; i = 0; fresh = NONE; old = NONE; oldv = 0; rep = 0; version = 0; named = false; keeps = false
	}
}

/* The server: proves that client 0 makes no change any more, in one part after the other. */
proctype server() {
	if
	:: true ->
		if
		:: cut_home[0] = true;
#ifndef SETTLE_EARLY
		   cut_data[0] = true; decided = true
#else
		   decided = true; cut_data[0] = true
#endif
		:: cut_data[0] = true;
#ifdef SETTLE_EARLY
		   decided = true; (ended > 0);
#endif
		   cut_home[0] = true; decided = true
		fi
	:: true -> decided = true
	fi;
	ended++
}

proctype reader() {
	byte n, h, r, rv, value;
	bool done;

	do
	:: n < READS ->
		atomic { h = hv; r = href; rv = hrv; value = hval };
		done = false;
		if
		:: r == NONE -> done = true
		:: else ->
			atomic {
				if
#ifdef NO_VERSION
				:: dx[r] -> torn = dval[r] != value; assert(!torn); done = true
#else
				:: dx[r] && dv[r] == rv -> torn = dval[r] != value; assert(!torn); done = true
#endif
				:: else
				fi
			}
		fi;
		if
		:: !done ->
			atomic { lost = (hv == h); assert(!lost) }
		:: else -> n++
		fi
	:: else -> break
	od;
	atomic { ended++; h = 0; r = 0; rv = 0; value = 0; n = 0; done = false }
}

init {
	byte k;

	atomic {
		inew[0] = NONE; inew[1] = NONE; iold[0] = NONE; iold[1] = NONE;
		run client(0, 0, PUTS); run client(1, 1, OTHER_PUTS); run reader();
#if CUTS
		run client(2, 0, 1); run taker(); run server()
#else
		ended = 3
#endif
	};
	atomic {
		ended == 6;
		lost = (href != NONE && !(dx[href] && dv[href] == hrv));
		assert(!lost);
		k = 0;
		do
		:: k < 4 ->
			if
			:: dx[k] && !(href == k && hrv == dv[k]) -> left_over = true
			:: else
			fi;
			k++
		:: else -> break
		od;
		left_over = left_over || ix[0] || ix[1];
		assert(!left_over)
	}
}
