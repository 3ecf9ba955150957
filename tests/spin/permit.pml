/*
 * permit.pml - the permit of a job that is alone (wire/lease_permit.h): two jobs, of which one iteration may run at a
 * time, and their broker. A job may stop or die at each of its steps, the broker die at each of its own, and a new one come.
 *
 * A job with a permit begins and ends by a CAS on its word, after it has seen that its broker is there. Else it sends
 * a message; the broker, one thread, takes back what permit it has lent, and then decides. It lends one where it has no
 * other job. A new broker knows the jobs by its roster, but not that one runs. Ghosts are read by assertions only.
 *
 *	two_run    two iterations run that both began while this broker was there
 *	refused    a job waits for one that runs no iteration
 *	miscounted an iteration was counted twice, or not at all
 *
 * Switches, each breaks one rule:
 *	RECALL_BY_STORE  the broker reads the word, then clears it        refused
 *	BEGIN_BY_STORE   a job reads the word, then says that it runs     miscounted
 *	END_BY_STORE     a job reads the word, then says that it ended    refused
 *	NO_RECALL        a new job leaves the other's permit as it is     refused
 *	NO_CHECK         a job does not look whether its broker is there  two_run
 *	KEEP_WORD        the word of a former broker is kept              two_run
 */
#ifndef STOPS
#define STOPS 0
#endif
#ifndef KILLS
#define KILLS 0
#endif
#ifndef DEATHS			/* of brokers */
#define DEATHS 0
#endif
#ifndef ROUNDS
#define ROUNDS 2		/* iterations of each job */
#endif

#define NONE 0
#define BETWEEN 1
#define RUNS 2
#define NOBODY 2
#define OTHER (1 - me)

byte word[2], ended[2];		/* ended: the number in the word */
byte connected[2];		/* to the broker of that generation */

byte generation = 1;		/* of the broker, whose all that follows is */
bool busy;			/* it handles a message */
bool member[2];			/* in its roster, which outlives it */
bool runs[2];
byte alone = NOBODY;		/* the job with the permit */
byte counted[2];

byte stops, kills, deaths;
bool dead[2];

bool running[2];		/* ghosts */
byte since[2], finished[2];
bool two_run, refused, miscounted;

#define ENTERS(job) \
	running[job] = true; \
	two_run = running[0] && running[1] && since[0] == generation && since[1] == generation; \
	assert(!(two_run))

inline maybe_leave() {
	if
	:: stops < STOPS -> stops++; goto stopped
	:: kills < KILLS -> atomic { kills++; dead[me] = true; running[me] = false; goto gone }
	:: true
	fi
}

/* The broker takes back the permit; at is its own generation: a dead one does nothing. */
inline recall() {
	if
	:: atomic {
		at == generation && alone != NOBODY ->
		holder = alone; seen = word[holder]; n = ended[holder];
#ifdef RECALL_BY_STORE
		};
		atomic { if :: at == generation -> word[holder] = NONE :: else fi };
#else
		word[holder] = NONE };
#endif
		atomic {
			if
			:: at == generation ->
				runs[holder] = (seen == RUNS);
				counted[holder] = counted[holder] + n;
				alone = NOBODY
			:: else
			fi
		}
	:: else
	fi
}

/* A message of a job, which says hello first to a broker that does not know its connection. */
inline message() {
	atomic { !busy -> busy = true; at = generation }
	if
	:: connected[me] != at ->
#ifndef NO_RECALL
		recall();
#endif
		atomic {
			if
			:: at == generation ->
				member[me] = true;
				connected[me] = at;
#ifndef KEEP_WORD
				word[me] = NONE
#endif
			:: else
			fi
		}
	:: else
	fi;
#ifdef NO_RECALL
	if
	:: alone == me -> recall()
	:: else
	fi
#else
	recall()
#endif
}

proctype job(byte me) {
	byte at, seen, holder, n, round;

	do
	:: round == ROUNDS -> break
	:: else ->
		maybe_leave();
		since[me] = 0;
#ifdef NO_CHECK
		if
		:: word[me] == BETWEEN ->
#else
		if
		:: atomic { word[me] == BETWEEN && connected[me] == generation -> since[me] = generation };
#endif
			maybe_leave();
#ifdef BEGIN_BY_STORE
			atomic { word[me] = RUNS; ENTERS(me) };
			goto iteration
#else
			atomic {
				if
				:: word[me] == BETWEEN ->
					word[me] = RUNS;
#ifdef NO_CHECK
					since[me] = generation;
#endif
					ENTERS(me);
					goto iteration
				:: else
				fi
			}
#endif
		:: else
		fi;
ask:		message();
		atomic {
			if
			:: at != generation -> goto ask
			:: at == generation && runs[OTHER] ->
				refused = !running[OTHER] && !dead[OTHER];
				assert(!(refused));
				busy = false
			:: else ->
				runs[me] = true;
				since[me] = generation;
				if
				:: !member[OTHER] -> alone = me; word[me] = RUNS; ended[me] = 0
				:: else
				fi;
				busy = false;
				ENTERS(me);
				goto iteration
			fi
		}
end_waits:	!runs[OTHER] || generation != at;
		goto ask;

iteration:	maybe_leave();
#ifdef END_BY_STORE
		if
		:: word[me] == RUNS ->
			atomic {
				word[me] = BETWEEN;
#else
		atomic {
			if
			:: word[me] == RUNS ->
				word[me] = BETWEEN;
#endif
				ended[me]++;
				running[me] = false;
				finished[me]++;
				goto next
#ifdef END_BY_STORE
			}
		:: else
		fi;
#else
			:: else
			fi
		}
#endif
tell:		maybe_leave();
		message();
		atomic {
			if
			:: at != generation -> goto tell
			:: else ->
				if
				:: runs[me] -> runs[me] = false; counted[me]++
				:: else
				fi;
				busy = false;
				running[me] = false;
				finished[me]++
			fi
		}
next:		round++
	od;
	atomic {
		!busy -> at = generation;
		if
		:: alone == me -> miscounted = (counted[me] + ended[me] != finished[me])
		:: else -> miscounted = (counted[me] != finished[me])
		fi;
		miscounted = miscounted && deaths == 0;
		assert(!(miscounted))
	}
	goto gone;
stopped:
end_stopped:	false;
gone:	skip
}

/* Deaths of jobs, which their pidfds tell, and of brokers. */
active proctype world() {
	byte at, seen, holder, n;

	run job(0);
	run job(1);
end_world:
	do
	:: atomic { !busy && dead[0] && member[0] -> busy = true; at = generation };
		recall();
		atomic { if :: at == generation -> runs[0] = false; member[0] = false; busy = false :: else fi }
	:: atomic { !busy && dead[1] && member[1] -> busy = true; at = generation };
		recall();
		atomic { if :: at == generation -> runs[1] = false; member[1] = false; busy = false :: else fi }
	:: atomic {
		deaths < DEATHS -> deaths++; generation++;
		busy = false; alone = NOBODY; runs[0] = false; runs[1] = false
	}
	od
}
