/*
 * limiter.pml - admitted and committed words (rule 8), a crash at every step.
 *
 * A queue of MAX_DIFF items: samples-per-insert 1, min_diff 0. Each view has four words; a
 * writer's item goes into every view, a sampler takes from one. Each client keeps the same four
 * words in its slot, so that the metadata server can give back what a dead client had admitted
 * and not committed. The slot's word and the shared word cannot change at once, hence the order:
 *
 *	admit	slot first, then CAS on the shared word		(a kill between: given back twice)
 *	commit	FAA on the shared word first, then the slot	(a kill between: given back twice)
 *	give	shared word first, then the slot		(the MS dies between: given back twice)
 *
 * A reservation given back once too often is slack of one item; one never given back is a place
 * lost for ever. So each such kill costs one reservation, counted in the ghost slack[].
 *
 * A sampler that dies between the take and its commit leaves a place that the words count as
 * full for ever. So a sampler that was admitted and finds no item does not give its reservation
 * back: it commits it as void, which puts the words right again.
 *
 * Invariants: never more items in a view than MAX_DIFF plus slack; an admitted sampler finds its
 * item unless there is slack; when nothing moves any more, no living client waits although the
 * other side of its view lives, and no item is left that nobody may take.
 *
 * Switches, each breaks one rule (see docs/models.md):
 *	ONE_PAIR  NO_GIVE_BACK  CHECK_THEN_ADD  INSERT_BY_ADMITTED  SAMPLE_BY_ADMITTED
 *	SAMPLE_IGNORES_ADMITTED  SLOT_AFTER_CAS  COMMIT_SLOT_FIRST  GIVE_BACK_BY_TIME
 *	CLEAR_SLOT_FIRST  VOID_GIVES_BACK
 */
#ifndef VIEWS
#define VIEWS 1
#endif
#ifndef WRITERS
#define WRITERS 2
#endif
#ifndef SAMPLERS
#define SAMPLERS 2		/* per view */
#endif
#ifndef ITEMS
#define ITEMS 2			/* inserted by each writer */
#endif
#ifndef MAX_DIFF
#define MAX_DIFF 1
#endif
#ifndef KILLS
#define KILLS 1			/* clients killed */
#endif
#ifndef MS_KILLS
#define MS_KILLS 0		/* kills of the metadata server, which then starts again */
#endif

#define CLIENTS (WRITERS + VIEWS * SAMPLERS)
#define LAST_VIEW (VIEWS - 1)

/* The words of a view. */
short ins_admitted[VIEWS];
short ins_committed[VIEWS];
short smp_admitted[VIEWS];
short smp_committed[VIEWS];

/* Slots: admitted and committed of a client; a writer has a pair per view, a sampler one pair. */
#define SLOT(c, v) ((c) * VIEWS + (v))
byte slot_admitted[CLIENTS * VIEWS];
byte slot_committed[CLIENTS * VIEWS];

short items[VIEWS];		/* what can be drawn */

bool dead[CLIENTS];
bool fenced[CLIENTS];
bool returned[CLIENTS];
byte kills;
byte buried;			/* the killed whom the MS has fenced */
byte ms_kills;

/* Ghosts. */
byte slack[VIEWS];

/* Before every step: go on, or be killed here. IN_GAP: where a kill costs a reservation. */
#define MAY_DIE								\
	if								\
	:: skip								\
	:: kills < KILLS -> kills++; dead[me] = true; goto died		\
	fi
#define MAY_DIE_IN_GAP(v)						\
	if								\
	:: skip								\
	:: kills < KILLS -> kills++; dead[me] = true; slack[v]++; goto died \
	fi

#ifdef ONE_PAIR
#define INSERT_BY_ADMITTED
#define SAMPLE_BY_ADMITTED
#define NO_GIVE_BACK
#endif

/* The two laws. Each compares with a word of the other side that only grows. */
#ifdef INSERT_BY_ADMITTED
#define TAKEN(v) smp_admitted[v]
#else
#define TAKEN(v) smp_committed[v]
#endif
#ifdef SAMPLE_BY_ADMITTED
#define PUT(v) ins_admitted[v]
#else
#define PUT(v) ins_committed[v]
#endif
#ifdef SAMPLE_IGNORES_ADMITTED
#define SAMPLED(v) smp_committed[v]
#else
#define SAMPLED(v) smp_admitted[v]
#endif
#define INSERT_FITS(v, own) ((own) + 1 - TAKEN(v) <= MAX_DIFF)
#define SAMPLE_FITS(v, own) (PUT(v) - (own) - 1 >= 0)

/*
 * admit: wait until the law may hold (the model's futex), note the reservation in the slot, read
 * the own word, check the law, CAS. Refused or beaten: take the note back and begin again.
 */
inline admit(v, word, own_word, fits_now, fits_seen)
{
	do
	:: true ->
#ifdef SLOT_AFTER_CAS
		fits_now;
#else
		atomic { fits_now -> MAY_DIE; slot_admitted[SLOT(me, v)]++ };
#endif
		atomic { MAY_DIE_IN_GAP(v); seen = word; own = own_word };
		atomic { MAY_DIE_IN_GAP(v); fits = fits_seen };
		atomic {
			MAY_DIE_IN_GAP(v);
			if
#ifdef CHECK_THEN_ADD
			:: fits -> word++; break
#else
			:: fits && word == seen -> word++; break
#endif
			:: else -> seen = 0; own = 0; fits = false
			fi
		};
#ifndef SLOT_AFTER_CAS
		atomic { MAY_DIE_IN_GAP(v); slot_admitted[SLOT(me, v)]-- }
#endif
	od;
#ifdef SLOT_AFTER_CAS
	atomic { MAY_DIE; slot_admitted[SLOT(me, v)]++ };
#endif
	atomic { seen = 0; own = 0; fits = false }
}

/* commit: the shared word by FAA, then the slot. */
inline commit(v, word)
{
#ifdef COMMIT_SLOT_FIRST
	atomic { MAY_DIE_IN_GAP(v); slot_committed[SLOT(me, v)]++ };
	atomic { MAY_DIE; word++ }
#else
	atomic { MAY_DIE_IN_GAP(v); word++ };
	atomic {
		MAY_DIE_IN_GAP(v);
		slot_admitted[SLOT(me, v)]--		/* only the difference matters: keep it small */
	}
#endif
}

proctype writer(byte me)
{
	byte v, count;
	short seen, own;
	bool fits, overshoot;

	do
	:: count < ITEMS ->
		count++;
		do
		:: v < VIEWS ->
			admit(v, ins_admitted[v], ins_admitted[v],
			      INSERT_FITS(v, ins_admitted[v]), INSERT_FITS(v, own));
			v++
		:: else -> v = 0; break
		od;
		do
		:: v < VIEWS ->
			atomic {			/* publish */
				MAY_DIE;
				items[v]++;
				overshoot = (items[v] > MAX_DIFF + slack[v]);
				assert(!overshoot)
			};
			commit(v, ins_committed[v]);
			v++
		:: else -> v = 0; break
		od
	:: else -> break
	od;
	returned[me] = true;
died:	skip
}

proctype sampler(byte me; byte v)
{
	short seen, own;
	bool fits, missing;

	do
	:: true ->
		admit(v, smp_admitted[v], SAMPLED(v),
		      SAMPLE_FITS(v, SAMPLED(v)), SAMPLE_FITS(v, own));
		atomic {
#ifdef ONE_PAIR
			items[v] > 0;			/* counted, so it must come */
#endif
			MAY_DIE;
			if
			:: items[v] > 0 -> items[v]--	/* take */
			:: else ->
				missing = (slack[v] == 0);
				assert(!missing);
#ifdef VOID_GIVES_BACK
				goto give_back
#endif
			fi
		};
		commit(v, smp_committed[v]);
		goto next;
#ifdef VOID_GIVES_BACK
give_back:	atomic { MAY_DIE; smp_admitted[v]-- };
		atomic { MAY_DIE_IN_GAP(v); slot_admitted[SLOT(me, v)]-- };
		items[v] > 0;
#endif
next:		skip
	od;
died:	skip
}

#ifdef COMMIT_SLOT_FIRST
#define REST(c, v) (slot_admitted[SLOT(c, v)] - slot_committed[SLOT(c, v)])
#else
#define REST(c, v) slot_admitted[SLOT(c, v)]
#endif

inline clear_slot()
{
	slot_admitted[SLOT(c, v)] = 0;
	slot_committed[SLOT(c, v)] = 0
}

/* Between the two words of a give-back the MS may die, too; started again, it begins anew. */
#define MS_MAY_DIE							\
	if								\
	:: skip								\
	:: ms_kills < MS_KILLS -> ms_kills++; slack[v] = slack[v] + REST(c, v); goto again \
	fi

inline give_back_rest()
{
#ifdef NO_GIVE_BACK
	skip
#else
#ifdef CLEAR_SLOT_FIRST
	atomic { rest = REST(c, v); clear_slot() };
	if
	:: skip
	:: ms_kills < MS_KILLS -> ms_kills++; rest = 0; goto again
	fi;
#else
	atomic { rest = REST(c, v) };
#endif
	atomic {
		if
		:: c < WRITERS -> ins_admitted[v] = ins_admitted[v] - rest
		:: else -> smp_admitted[v] = smp_admitted[v] - rest
		fi;
		rest = 0
	};
	atomic { MS_MAY_DIE; clear_slot() }
#endif
}

inline fence()
{
	do
	:: v < VIEWS -> give_back_rest(); v++
	:: else -> v = 0; break
	od;
	atomic {
		fenced[c] = true;
		if
		:: dead[c] -> buried++
		:: else -> skip
		fi;
		c = 0
	}
}

/* The metadata server fences the dead and gives back what they admitted and did not commit. */
proctype metadata_server()
{
	byte c, v;
	short rest;

again:	atomic { c = 0; v = 0; rest = 0 };
	do
	:: atomic {
		kills > buried ->
		do
		:: dead[c] && !fenced[c] -> break
		:: else -> c++
		od
	   };
	   fence()
#ifdef GIVE_BACK_BY_TIME
	:: atomic { !fenced[0] && slot_admitted[0] != 0 -> c = 0 };
	   fence()
#endif
	od
}

init
{
	byte c, v;
	byte alive;
	bool waits_for_ever, left_over;

	atomic {
		run metadata_server();
		do
		:: c < WRITERS -> run writer(c); c++
		:: c >= WRITERS && c < CLIENTS -> run sampler(c, (c - WRITERS) / SAMPLERS); c++
		:: else -> break
		od
	};
	/* Nothing moves any more. With a living sampler in every view, nobody may be left waiting. */
	atomic {
		timeout ->
		c = WRITERS;
		do
		:: v < VIEWS ->
			alive = 0;
			do
			:: c < WRITERS + (v + 1) * SAMPLERS ->
				if
				:: dead[c] -> skip
				:: else -> alive++
				fi;
				c++
			:: else -> break
			od;
			if
			:: alive == 0 -> goto idle
			:: else -> v++
			fi
		:: else -> break
		od;
		v = 0;
		do
		:: v < VIEWS ->
			left_over = (items[v] > slack[v]);
			assert(!left_over);
			v++
		:: else -> break
		od;
		c = 0;
		do
		:: c < WRITERS ->
			waits_for_ever = (!dead[c] && !returned[c]);
			assert(!waits_for_ever);
			c++
		:: else -> break
		od;
idle:		skip
	}
}
