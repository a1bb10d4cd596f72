/*
 * The commit of a crawl of several partitions: prepared in the others, decided in the first, and told afterwards.
 *
 * URL 0 is in partition 0, the others in the other partitions; each is queued, acked, prepared or done. A worker
 * acks what it likes (it is lent it in the same step), and writes an item with each ack. A commit is a number: all partitions but the first
 * prepare what is acked for it; the first decides, and with that the items count (`kept`: the position in the file is
 * part of the decision); later the others are told. Between any two steps the worker may be killed (KILLS; it comes back
 * under a new name, or not), or be buried by partition 0 while it lives (PAUSES): it is told to whoever comes, who tells
 * the others, with the last commit that was decided, and then partition 0 that they know. A message may come once more,
 * much later (TWINS). Each atomic or d_step that touches a partition is one call of its script, and touches no other.
 *
 * What is broken on purpose is chosen with -D: see README.md.
 *
 *   spin -a commit.pml && gcc -O2 -DSAFETY -DNOCLAIM -o pan pan.c && ./pan       all or nothing, and never twice
 *   spin -a commit.pml && gcc -O2 -DNFAIR=3 -o pan pan.c && ./pan -a -f          nothing stays prepared for ever
 */

#ifndef PARTITIONS
#define PARTITIONS 2    /* 2: two URLs in partition 1; 3: one in each */
#endif
#ifndef URLS
#define URLS 3          /* 2 or 3 */
#endif
#ifndef PAUSES
#define PAUSES 1
#endif
#ifndef KILLS
#define KILLS 1
#endif
#ifndef TWINS
#define TWINS 1
#endif

#define WORKERS 2
#define NAMES (WORKERS + PAUSES + KILLS + TWINS)    /* as many as are ever needed */
#define NOBODY NAMES

#if PARTITIONS == 2
#define home(n) ((n) > 0)
#else
#define home(n) (n)
#endif

mtype = { queued, acked, prepared, done };
mtype = { nothing, prepare, decide };

mtype state[3] = queued;
byte holder[3] = NOBODY;
bool kept[3];                   /* its item is in a file, before the position that was committed */

byte names;
bool known[PARTITIONS * NAMES]; /* the partition knows the name */
bool buried[PARTITIONS * NAMES];/* it was told that the name is gone */
byte number[PARTITIONS * NAMES];/* the commit that it has prepared for the name */
byte last[NAMES];               /* the last commit that partition 0 has decided */
bool gone[NAMES];               /* partition 0 has buried it, and does not know whether the others know */
byte told[NAMES];               /* the last commit of one that is gone */
bool dead[NAMES], killed[WORKERS], ended[WORKERS];

mtype twin = nothing;           /* a message that comes once more */
byte twin_of, twin_to, twin_number;

#define at(p, x) ((p) * NAMES + (x))
#define all_done (state[0] == done && state[1] == done && state[2] == done)

inline settle(n) {
    assert(kept[n]);            /* or its item is lost */
    state[n] = done;
    holder[n] = NOBODY
}

inline revert(n) {
    assert(!kept[n]);           /* or it is fetched again, and its item is there twice */
    state[n] = queued;
    holder[n] = NOBODY
}

#ifdef THE_PREPARED_COUNT
#define was_decided(p, x, c) true
#elif defined(THE_PREPARED_DO_NOT_COUNT)
#define was_decided(p, x, c) false
#else
#define was_decided(p, x, c) (number[at(p, x)] <= (c))
#endif

#define GIVE_BACK(p, x, c, n) \
    if \
    :: home(n) == (p) && holder[n] == (x) && state[n] == prepared && was_decided(p, x, c) -> settle(n) \
    :: home(n) == (p) && holder[n] == (x) && !(state[n] == prepared && was_decided(p, x, c)) -> revert(n) \
    :: else \
    fi

/* A name is gone from a partition; its last commit was this one. */
inline bury(p, x, c) {
    known[at(p, x)] = false;
    buried[at(p, x)] = true;
    GIVE_BACK(p, x, c, 0);
    GIVE_BACK(p, x, c, 1);
    GIVE_BACK(p, x, c, 2);
    number[at(p, x)] = 0
}

/* Partition 0 decides that it is gone. */
inline bury_here(x) {
    told[x] = last[x];
    last[x] = 0;
    gone[x] = true;
    bury(0, x, 0)
}

#define PREPARED(p, x, n) if :: home(n) == (p) && holder[n] == (x) && state[n] == acked -> state[n] = prepared :: else fi
#define SETTLED(p, x, n) if :: home(n) == (p) && holder[n] == (x) && state[n] == prepared -> settle(n) :: else fi

inline do_prepare(p, x, k) {
    SETTLED(p, x, 0); SETTLED(p, x, 1); SETTLED(p, x, 2);   /* of the commit before: it was decided, or there is no other */
    PREPARED(p, x, 0); PREPARED(p, x, 1); PREPARED(p, x, 2);
    number[at(p, x)] = k
}

inline do_decide(x, k) {
    last[x] = k;
    if :: holder[0] == x && state[0] == acked -> settle(0) :: else fi
}

inline keep(n) {
    if
    :: written & (1 << n) -> assert(!kept[n]); kept[n] = true
    :: else
    fi
}

/* It may come once more. */
inline sent(what, p, k) {
    if
    :: twins > 0 && twin == nothing -> twin = what; twin_of = name; twin_to = p; twin_number = k; twins--
    :: true
    fi
}

#define ours(n) (written & (1 << (n)))
#if PARTITIONS == 2
#define concerned(p) ((p) == 1 && (ours(1) || ours(2)))
#define refused (!known[at(0, name)] || !known[at(1, name)])
#else
#define concerned(p) (ours(p) != 0)
#define refused (!known[at(0, name)] || !known[at(1, name)] || !known[at(2, name)])
#endif

#define ACK(n) :: d_step { state[n] == queued && known[at(home(n), name)] -> \
    state[n] = acked; holder[n] = name; written = written | (1 << n) }

#define PREPARE(p) \
    :: (todo & (1 << p)) -> \
        atomic { \
            todo = todo & ~(1 << p); \
            if \
            :: !known[at(p, name)] -> goto again \
            :: else -> do_prepare(p, name, commit); open = open | (1 << p); sent(prepare, p, commit) \
            fi \
        }
#define DECIDE \
    atomic { \
        if \
        :: !known[at(0, name)] -> goto again \
        :: else -> keep(0); keep(1); keep(2); do_decide(name, commit); sent(decide, 0, commit) \
        fi \
    }
#define TELL(p) :: (open & (1 << p)) -> \
    atomic { \
        open = open & ~(1 << p); \
        if \
        :: !known[at(p, name)] -> goto again \
        :: else -> SETTLED(p, name, 0); SETTLED(p, name, 1); SETTLED(p, name, 2); number[at(p, name)] = 0 \
        fi \
    }

/* Tell the others who is gone, and partition 0 that they know. */
#if PARTITIONS == 2
#define TELL_ALL d_step { bury(1, who, what) }
#else
#define TELL_ALL d_step { bury(1, who, what) }; d_step { bury(2, who, what) }
#endif
#ifdef KNOWN_BEFORE_IT_IS_TOLD
#define TELL_OF(x) :: d_step { x < NAMES && gone[x] -> who = x; what = told[x] }; d_step { gone[who] = false }; \
    TELL_ALL; d_step { who = NOBODY; what = 0 }
#else
#define TELL_OF(x) :: d_step { x < NAMES && gone[x] -> who = x; what = told[x] }; TELL_ALL; \
    d_step { gone[who] = false; who = NOBODY; what = 0 }
#endif

byte twins = TWINS;

proctype worker(byte me) {
    byte name = NOBODY, commit, written, todo, open, who = NOBODY, what;
again:
    {
        atomic {
            commit = 0; written = 0; todo = 0; open = 0; who = NOBODY; what = 0;
            if      /* whoever was here before under this name is gone */
            :: name < NAMES && known[at(0, name)] -> bury_here(name)
            :: else
            fi;
            assert(names < NAMES);
            name = names;
            names++;
            known[at(0, name)] = true
        };
        atomic { if :: buried[at(1, name)] -> goto again :: else -> known[at(1, name)] = true fi };
#if PARTITIONS > 2
        atomic { if :: buried[at(2, name)] -> goto again :: else -> known[at(2, name)] = true fi };
#endif
        do
        ACK(0) ACK(1) ACK(2)
        TELL(1)
#if PARTITIONS > 2
        TELL(2)
#endif
        TELL_OF(0) TELL_OF(1) TELL_OF(2) TELL_OF(3) TELL_OF(4)
        :: refused -> goto again
        :: written ->
            d_step {
                commit++;
                todo = (concerned(1) << 1);
#if PARTITIONS > 2
                todo = todo | (concerned(2) << 2)
#endif
            };
#ifdef DECIDES_BEFORE_IT_PREPARES
            DECIDE;
#endif
            do
            PREPARE(1)
#if PARTITIONS > 2
            PREPARE(2)
#endif
            :: !todo -> break
            od;
#ifndef DECIDES_BEFORE_IT_PREPARES
            DECIDE;
#endif
            written = 0
        :: all_done -> goto stop
        od
    } unless {
        atomic { killed[me] -> killed[me] = false; if :: name < NAMES -> dead[name] = true :: true fi }
    };
    if
    :: name < NAMES && dead[name]
    :: else -> goto again
    fi;
stop:
    atomic { ended[me] = true; commit = 0; written = 0; todo = 0; open = 0; who = NOBODY; what = 0 }
}

/* The dead are silent, and so buried some time; the living are killed and buried at most so often. */
#define BURY_THE_DEAD(x) :: d_step { x < NAMES && dead[x] && known[at(0, x)] -> bury_here(x) }
#define PAUSE(x) :: d_step { x < NAMES && pauses > 0 && !dead[x] && known[at(0, x)] -> pauses--; bury_here(x) }
#define LEAVE_AGAIN(x) :: d_step { x < names && !known[at(0, x)] && again > 0 -> again--; gone[x] = true; told[x] = 0 }

active proctype chance() {
    byte pauses = PAUSES, kills = KILLS;
    byte again = 1;
end:
    do
    BURY_THE_DEAD(0) BURY_THE_DEAD(1) BURY_THE_DEAD(2) BURY_THE_DEAD(3) BURY_THE_DEAD(4)
    PAUSE(0) PAUSE(1) PAUSE(2)
#ifdef A_LEAVE_COUNTS_TWICE
    LEAVE_AGAIN(0) LEAVE_AGAIN(1) LEAVE_AGAIN(2)
#endif
    :: d_step { kills > 0 && !ended[0] -> kills--; killed[0] = true }
    :: d_step { kills > 0 && !ended[1] -> kills--; killed[1] = true }
    :: d_step {
            twin != nothing ->
#ifdef REPEATS_ARE_HEARD
            if
            :: twin == prepare && known[at(twin_to, twin_of)] -> do_prepare(twin_to, twin_of, twin_number)
            :: twin == decide && known[at(0, twin_of)] -> do_decide(twin_of, twin_number)
            :: else
            fi;
#endif
#ifdef THE_LATE_ARE_BURIED
            if
            :: twin == prepare && known[at(twin_to, twin_of)] -> bury(twin_to, twin_of, 0)
            :: else
            fi;
#endif
            twin = nothing; twin_of = 0; twin_to = 0; twin_number = 0
        }
    od
}

init {
    atomic {
        if :: URLS < 3 -> state[2] = done :: else fi;
        run worker(0);
        run worker(1)
    }
}

ltl ends { <> all_done }
