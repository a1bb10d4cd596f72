/*
 * The commit of a crawl with several partitions: prepared in the others, decided in the first, and announced afterwards.
 *
 * URL 0 is in partition 0, the others are in the other partitions; each is queued, acked, prepared or done. A worker acks
 * any URL (the lease is part of the step) and writes an item with each ack. A commit has a number: all partitions but the
 * first prepare the acked URLs for it. The first one decides; this commits the items (`item_committed`: the position in
 * the file is part of the decision). The others learn of the decision later. Between any two steps the worker may be
 * killed (KILLS; it returns with a new name, or not), or expire in partition 0 while it lives (PAUSES): the next worker
 * that calls announces that to the others, with the last commit that was decided, and then confirms it to partition 0. A
 * message may arrive a second time, much later (REPEATS). Each atomic or d_step that touches a partition is one call of
 * its script, and touches no other partition.
 *
 * -D selects what is broken on purpose: see README.md.
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
#ifndef REPEATS
#define REPEATS 1
#endif

#define WORKERS 2
#define NAMES (WORKERS + PAUSES + KILLS + REPEATS)    /* as many as are ever used */
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
bool item_committed[3];         /* its item is in a file, before the committed position */

byte names;
bool known[PARTITIONS * NAMES]; /* the partition knows the name */
bool expired[PARTITIONS * NAMES];   /* it knows that the name has expired */
byte number[PARTITIONS * NAMES];    /* the commit it has prepared for the name */
byte last[NAMES];               /* the last commit decided by partition 0 */
bool unconfirmed[NAMES];        /* partition 0 expired it; not confirmed by the others */
byte last_of_expired[NAMES];    /* the last commit of an expired name */
bool dead[NAMES], killed[WORKERS], ended[WORKERS];

mtype repeated = nothing;       /* a message that arrives once more */
byte repeated_of, repeated_to, repeated_number;

#define at(p, x) ((p) * NAMES + (x))
#define all_done (state[0] == done && state[1] == done && state[2] == done)

inline settle(n) {
    assert(item_committed[n]);      /* else its item is lost */
    state[n] = done;
    holder[n] = NOBODY
}

inline revert(n) {
    assert(!item_committed[n]);     /* else it is fetched again, and its item is written twice */
    state[n] = queued;
    holder[n] = NOBODY
}

#ifdef COMMITS_ALL_PREPARED
#define was_decided(p, x, c) true
#elif defined(REVERTS_ALL_PREPARED)
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

/* A name expires in a partition; c is its last decided commit. */
inline expire(p, x, c) {
    known[at(p, x)] = false;
    expired[at(p, x)] = true;
    GIVE_BACK(p, x, c, 0);
    GIVE_BACK(p, x, c, 1);
    GIVE_BACK(p, x, c, 2);
    number[at(p, x)] = 0
}

/* Partition 0 decides that it expires. */
inline expire_in_first(x) {
    last_of_expired[x] = last[x];
    last[x] = 0;
    unconfirmed[x] = true;
    expire(0, x, 0)
}

#define PREPARED(p, x, n) if :: home(n) == (p) && holder[n] == (x) && state[n] == acked -> state[n] = prepared :: else fi
#define SETTLED(p, x, n) if :: home(n) == (p) && holder[n] == (x) && state[n] == prepared -> settle(n) :: else fi

inline do_prepare(p, x, k) {
    SETTLED(p, x, 0); SETTLED(p, x, 1); SETTLED(p, x, 2);   /* of the previous commit, which was decided */
    PREPARED(p, x, 0); PREPARED(p, x, 1); PREPARED(p, x, 2);
    number[at(p, x)] = k
}

inline do_decide(x, k) {
    last[x] = k;
    if :: holder[0] == x && state[0] == acked -> settle(0) :: else fi
}

inline commit_item(n) {
    if
    :: written & (1 << n) -> assert(!item_committed[n]); item_committed[n] = true
    :: else
    fi
}

/* It may arrive once more. */
inline sent(what, p, k) {
    if
    :: repeats > 0 && repeated == nothing -> repeated = what; repeated_of = name; repeated_to = p; repeated_number = k; repeats--
    :: true
    fi
}

#define ours(n) (written & (1 << (n)))
#if PARTITIONS == 2
#define takes_part(p) ((p) == 1 && (ours(1) || ours(2)))
#define refused (!known[at(0, name)] || !known[at(1, name)])
#else
#define takes_part(p) (ours(p) != 0)
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
        :: else -> commit_item(0); commit_item(1); commit_item(2); do_decide(name, commit); sent(decide, 0, commit) \
        fi \
    }
#define CONFIRM(p) :: (open & (1 << p)) -> \
    atomic { \
        open = open & ~(1 << p); \
        if \
        :: !known[at(p, name)] -> goto again \
        :: else -> SETTLED(p, name, 0); SETTLED(p, name, 1); SETTLED(p, name, 2); number[at(p, name)] = 0 \
        fi \
    }

/* Announce an expired name to the others, then confirm it to partition 0. */
#if PARTITIONS == 2
#define ANNOUNCE_TO_ALL d_step { expire(1, who, what) }
#else
#define ANNOUNCE_TO_ALL d_step { expire(1, who, what) }; d_step { expire(2, who, what) }
#endif
#ifdef FORGOTTEN_BEFORE_ANNOUNCED
#define ANNOUNCE(x) :: d_step { x < NAMES && unconfirmed[x] -> who = x; what = last_of_expired[x] }; d_step { unconfirmed[who] = false }; \
    ANNOUNCE_TO_ALL; d_step { who = NOBODY; what = 0 }
#else
#define ANNOUNCE(x) :: d_step { x < NAMES && unconfirmed[x] -> who = x; what = last_of_expired[x] }; ANNOUNCE_TO_ALL; \
    d_step { unconfirmed[who] = false; who = NOBODY; what = 0 }
#endif

byte repeats = REPEATS;

proctype worker(byte me) {
    byte name = NOBODY, commit, written, todo, open, who = NOBODY, what;
again:
    {
        atomic {
            commit = 0; written = 0; todo = 0; open = 0; who = NOBODY; what = 0;
            if      /* an earlier process of this worker expires */
            :: name < NAMES && known[at(0, name)] -> expire_in_first(name)
            :: else
            fi;
            assert(names < NAMES);
            name = names;
            names++;
            known[at(0, name)] = true
        };
        atomic { if :: expired[at(1, name)] -> goto again :: else -> known[at(1, name)] = true fi };
#if PARTITIONS > 2
        atomic { if :: expired[at(2, name)] -> goto again :: else -> known[at(2, name)] = true fi };
#endif
        do
        ACK(0) ACK(1) ACK(2)
        CONFIRM(1)
#if PARTITIONS > 2
        CONFIRM(2)
#endif
        ANNOUNCE(0) ANNOUNCE(1) ANNOUNCE(2) ANNOUNCE(3) ANNOUNCE(4)
        :: refused -> goto again
        :: written ->
            d_step {
                commit++;
                todo = (takes_part(1) << 1);
#if PARTITIONS > 2
                todo = todo | (takes_part(2) << 2)
#endif
            };
#ifdef DECIDES_BEFORE_PREPARING
            DECIDE;
#endif
            do
            PREPARE(1)
#if PARTITIONS > 2
            PREPARE(2)
#endif
            :: !todo -> break
            od;
#ifndef DECIDES_BEFORE_PREPARING
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

/* Killed workers expire at some time; live ones are killed and expire at most KILLS and PAUSES times. */
#define EXPIRE_KILLED(x) :: d_step { x < NAMES && dead[x] && known[at(0, x)] -> expire_in_first(x) }
#define PAUSE(x) :: d_step { x < NAMES && pauses > 0 && !dead[x] && known[at(0, x)] -> pauses--; expire_in_first(x) }
#define LEAVE_AGAIN(x) :: d_step { x < names && !known[at(0, x)] && again > 0 -> again--; unconfirmed[x] = true; last_of_expired[x] = 0 }

active proctype environment() {
    byte pauses = PAUSES, kills = KILLS;
    byte again = 1;
end:
    do
    EXPIRE_KILLED(0) EXPIRE_KILLED(1) EXPIRE_KILLED(2) EXPIRE_KILLED(3) EXPIRE_KILLED(4)
    PAUSE(0) PAUSE(1) PAUSE(2)
#ifdef LEAVE_APPLIES_TWICE
    LEAVE_AGAIN(0) LEAVE_AGAIN(1) LEAVE_AGAIN(2)
#endif
    :: d_step { kills > 0 && !ended[0] -> kills--; killed[0] = true }
    :: d_step { kills > 0 && !ended[1] -> kills--; killed[1] = true }
    :: d_step {
            repeated != nothing ->
#ifdef REPEATS_ARE_APPLIED
            if
            :: repeated == prepare && known[at(repeated_to, repeated_of)] -> do_prepare(repeated_to, repeated_of, repeated_number)
            :: repeated == decide && known[at(0, repeated_of)] -> do_decide(repeated_of, repeated_number)
            :: else
            fi;
#endif
#ifdef LATE_MESSAGES_EXPIRE_THEIR_SENDER
            if
            :: repeated == prepare && known[at(repeated_to, repeated_of)] -> expire(repeated_to, repeated_of, 0)
            :: else
            fi;
#endif
            repeated = nothing; repeated_of = 0; repeated_to = 0; repeated_number = 0
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
