/*
 * Membership of a crawl with several partitions: the first one decides which workers live, and workers announce it to
 * the others.
 *
 * There are one URL, in partition 1, and two workers. The model only has the names that each partition knows, and the
 * name that holds the URL. A worker gets its name in partition 0, which knows it from then on; it opens partition 1 with
 * that name; then it calls both in any order, and abandons its name when one does not know it. Partition 0 expires a
 * name at any time (PAUSES) and tells the next worker that calls; that worker announces the expired name to partition
 * 1, then confirms that to partition 0.
 * Between any two steps a worker may be killed (KILLS).
 *
 *   spin -a joining.pml && gcc -O2 -DNFAIR=3 -o pan pan.c && ./pan -a -f
 */

#ifndef PAUSES
#define PAUSES 1
#endif
#ifndef KILLS
#define KILLS 1
#endif

#define WORKERS 2
#define NAMES (WORKERS + 2 * PAUSES + KILLS + 1)    /* more than are ever used */
#define NOBODY NAMES

mtype = { unseen, queued, leased, done };

mtype state = unseen;       /* of the URL, in partition 1 */
byte holder = NOBODY;
byte names;
bool known_by_0[NAMES];     /* partition 0 knows the name */
bool unconfirmed[NAMES];    /* partition 0 expired it; not confirmed by partition 1 */
bool known_by_1[NAMES];     /* partition 1 knows the name */
bool expired_in_1[NAMES];   /* partition 1 remembers that it expired */
bool dead[NAMES], killed[WORKERS], ended[WORKERS];

inline expire(n) { known_by_0[n] = false; unconfirmed[n] = true }

/* Partition 1 learns that a name has expired. */
inline announce(n) {
    known_by_1[n] = false;
    expired_in_1[n] = true;
    if
    :: holder == n && state == leased -> state = queued; holder = NOBODY
    :: else
    fi
}

proctype worker(byte me) {
    byte name = NAMES, i;
    bool first;
again:
    {
        d_step { assert(names < NAMES); name = names; names++; known_by_0[name] = true };
#ifdef FORGETS_EXPIRED_NAMES
        known_by_1[name] = true;
#else
        atomic { if :: expired_in_1[name] -> goto again :: else -> known_by_1[name] = true fi };   /* refused: too late */
#endif
        do
        :: state == done -> goto stop
        :: else ->
            /* Both partitions are called at once: the replies are independent. */
            if
            :: first = true; atomic { if :: !known_by_0[name] -> goto again :: else fi }
            :: first = false
            fi;
            atomic {
                if
                :: !known_by_1[name] -> goto again
                :: known_by_1[name] && state == queued -> state = leased; holder = name
                :: else
                fi
            };
            if
            :: !first -> atomic { if :: !known_by_0[name] -> goto again :: else fi }
            :: first
            fi;
            i = 0;
            do
            :: i < NAMES && unconfirmed[i] -> d_step { announce(i) }; d_step { unconfirmed[i] = false; i = 0 }
            :: i < NAMES && !unconfirmed[i] -> i++
            :: i == NAMES -> break
            od;
            i = 0;
            /* The leased URL is done; partition 1 accepts that from a known name. */
            d_step { if :: known_by_1[name] && holder == name && state == leased -> state = done; holder = NOBODY :: else fi }
        od
    } unless { killed[me] };
    if
    :: name < NAMES -> dead[name] = true
    :: else
    fi;
stop:
    ended[me] = true
}

/* The URL arrives at some time. Killed workers expire at some time; live ones expire at most PAUSES times. */
active proctype environment() {
    byte pauses = PAUSES, kills = KILLS;
    byte n;
end:
    do
    :: d_step { state == unseen -> state = queued }
    :: d_step { dead[0] && known_by_0[0] -> expire(0) }
    :: d_step { dead[1] && known_by_0[1] -> expire(1) }
    :: d_step { dead[2] && known_by_0[2] -> expire(2) }
    :: d_step { dead[3] && known_by_0[3] -> expire(3) }
    :: d_step { pauses > 0 && known_by_0[0] && !dead[0] -> pauses--; expire(0) }
    :: d_step { pauses > 0 && known_by_0[1] && !dead[1] -> pauses--; expire(1) }
    :: d_step { kills > 0 && !ended[0] -> kills--; killed[0] = true }
    :: d_step { kills > 0 && !ended[1] -> kills--; killed[1] = true }
    od
}

init { atomic { run worker(0); run worker(1) } }

ltl ends { <> (state == done) }
