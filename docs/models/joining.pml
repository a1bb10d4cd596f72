/*
 * Who lives, where a crawl has several partitions: the first one decides, and the others are told by whoever comes by.
 *
 * One URL in partition 1, two workers, and only the questions who is known where, and who has the URL. A worker gets its
 * name in partition 0, which hears it from then on; it opens partition 1 under that name; then it talks to both in any
 * order, and where it is not known it gives up its name. Partition 0 buries a name at any time (PAUSES), and tells it to
 * whoever comes; that worker tells partition 1, and then partition 0 that it did. Between any two steps a worker may be
 * killed (KILLS).
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
#define NAMES (WORKERS + 2 * PAUSES + KILLS + 1)    /* more than are ever needed */
#define NOBODY NAMES

mtype = { unseen, queued, leased, done };

mtype state = unseen;       /* of the URL, in partition 1 */
byte holder = NOBODY;
byte names;
bool heard[NAMES];          /* partition 0 knows the name */
bool gone[NAMES];           /* partition 0 has buried it, and does not know whether partition 1 knows */
bool known[NAMES];          /* partition 1 knows the name */
bool buried[NAMES];         /* partition 1 was told that it is gone, and remembers */
bool dead[NAMES], killed[WORKERS], ended[WORKERS];

inline bury(n) { heard[n] = false; gone[n] = true }

/* Partition 1 hears that a name is gone. */
inline tell(n) {
    known[n] = false;
    buried[n] = true;
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
        d_step { assert(names < NAMES); name = names; names++; heard[name] = true };
#ifdef FORGETS_THE_BURIED
        known[name] = true;
#else
        atomic { if :: buried[name] -> goto again :: else -> known[name] = true fi };   /* refused: too late */
#endif
        do
        :: state == done -> goto stop
        :: else ->
            /* Both partitions are asked at once: the answers are independent. */
            if
            :: first = true; atomic { if :: !heard[name] -> goto again :: else fi }
            :: first = false
            fi;
            atomic {
                if
                :: !known[name] -> goto again
                :: known[name] && state == queued -> state = leased; holder = name
                :: else
                fi
            };
            if
            :: !first -> atomic { if :: !heard[name] -> goto again :: else fi }
            :: first
            fi;
            i = 0;
            do
            :: i < NAMES && gone[i] -> d_step { tell(i) }; d_step { gone[i] = false; i = 0 }
            :: i < NAMES && !gone[i] -> i++
            :: i == NAMES -> break
            od;
            i = 0;
            /* What it was lent is done; partition 1 takes that of a name that it knows. */
            d_step { if :: known[name] && holder == name && state == leased -> state = done; holder = NOBODY :: else fi }
        od
    } unless { killed[me] };
    if
    :: name < NAMES -> dead[name] = true
    :: else
    fi;
stop:
    ended[me] = true
}

/* The URL comes some time. The dead are silent, and so buried some time; the living are buried at most so often. */
active proctype chance() {
    byte pauses = PAUSES, kills = KILLS;
    byte n;
end:
    do
    :: d_step { state == unseen -> state = queued }
    :: d_step { dead[0] && heard[0] -> bury(0) }
    :: d_step { dead[1] && heard[1] -> bury(1) }
    :: d_step { dead[2] && heard[2] -> bury(2) }
    :: d_step { dead[3] && heard[3] -> bury(3) }
    :: d_step { pauses > 0 && heard[0] && !dead[0] -> pauses--; bury(0) }
    :: d_step { pauses > 0 && heard[1] && !dead[1] -> pauses--; bury(1) }
    :: d_step { kills > 0 && !ended[0] -> kills--; killed[0] = true }
    :: d_step { kills > 0 && !ended[1] -> kills--; killed[1] = true }
    od
}

init { atomic { run worker(0); run worker(1) } }

ltl ends { <> (state == done) }
