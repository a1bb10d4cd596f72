/*
 * Termination of a crawl that many workers share. README.md says what is modelled and what is left out.
 *
 * Partitions hold URLs: unseen -> queued -> leased -> uncommitted -> done. A URL is queued again if its worker expires.
 * URL n belongs to partition n % PARTITIONS and has the children n+1 (in another partition) and n+2. Children in
 * another partition wait in an outbox, one per pair of partitions, with entries numbered from 1. Each atomic or d_step
 * that touches a partition is one call of its script, and touches no other partition.
 *
 * -D sets the bounds and selects what is broken on purpose: see the table in README.md.
 *
 *   spin -a -DCRASHES=1 finish.pml && gcc -O2 -DSAFETY -DNOCLAIM -o pan pan.c && ./pan           never too early
 *   spin -a -DCRASHES=1 finish.pml && gcc -O2 -DNFAIR=3 -o pan pan.c && ./pan -a -f              always in the end
 */

#ifndef PARTITIONS
#define PARTITIONS 2
#endif
#ifndef WORKERS
#define WORKERS 2
#endif
#ifndef URLS
#define URLS 3      /* 2 to 4 */
#endif
#ifndef CRASHES
#define CRASHES 1   /* kills; a killed worker may return with a new name, or not */
#endif
#ifndef PAUSES
#define PAUSES 1    /* a live worker expires in one partition */
#endif

#define URLS_MAX 4
#define PAIRS (PARTITIONS * PARTITIONS)
#define ENTRIES_MAX 8
#define NOBODY WORKERS          /* held by a name without a worker that has not expired yet */
#define STRANDED (WORKERS + 1)  /* leased to a live worker that did not get the reply */

#define home(n) ((n) % PARTITIONS)
#define pair(p, q) ((p) * PARTITIONS + (q))
#define from_of(x) ((x) / PARTITIONS)
#define to_of(x) ((x) % PARTITIONS)

mtype = { unseen, queued, leased, uncommitted, done };

mtype state[URLS_MAX] = unseen;
byte owner[URLS_MAX] = NOBODY;
byte entry[PAIRS * ENTRIES_MAX];    /* entry[x * ENTRIES_MAX + number]: a URL; numbers start at 1 */
byte last[PAIRS], trimmed[PAIRS];   /* of the sender: the last number assigned, and trimmed */
byte taken[PAIRS];                  /* of the receiver: the highest number it has accepted */
byte arrived[PARTITIONS];
byte outside;                       /* pushes from outside, all of them to partition 0 */

bool known[WORKERS * PARTITIONS];   /* the partition knows the current name of the worker */
bool killed[WORKERS], dead[WORKERS], finished[WORKERS];

#define member(w, p) known[(w) * PARTITIONS + (p)]
#define stopped(w) (finished[w] || dead[w])

/* What a partition reports; some of it broken on purpose. */
#ifdef UNCOMMITTED_NOT_COUNTED
#define unfinished(n) (state[n] == queued || state[n] == leased)
#else
#define unfinished(n) (state[n] == queued || state[n] == leased || state[n] == uncommitted)
#endif
#ifdef OUTBOX_NOT_COUNTED
#define waits(p, q) false
#else
#define waits(p, q) (last[pair(p, q)] > trimmed[pair(p, q)])
#endif
#if PARTITIONS == 2
#define sends(p) (waits(p, 0) || waits(p, 1))
#else
#define sends(p) (waits(p, 0) || waits(p, 1) || waits(p, 2))
#endif
#define works(p, n) (n < URLS && home(n) == (p) && unfinished(n))
#define live(p) (works(p, 0) || works(p, 1) || works(p, 2) || works(p, 3) || sends(p))

/* The truth, whatever is reported. */
#define is_done(n) (n >= URLS || state[n] == done)
#define all_done (is_done(0) && is_done(1) && is_done(2) && is_done(3))

/* What a worker can do. */
#define leasable(w, n) (n < URLS && state[n] == queued && member(w, home(n)))
#define has(w, n) (n < URLS && owner[n] == w && (state[n] == leased || state[n] == uncommitted))
#define busy(w) (has(w, 0) || has(w, 1) || has(w, 2) || has(w, 3))
#define can_lease(w) (leasable(w, 0) || leasable(w, 1) || leasable(w, 2) || leasable(w, 3))
#define holds(x) (last[x] > trimmed[x])
#if PARTITIONS == 2
#define can_forward (holds(1) || holds(2))
#define refused(w) (!member(w, 0) || !member(w, 1))
#else
#define can_forward (holds(1) || holds(2) || holds(3) || holds(5) || holds(6) || holds(7))
#define refused(w) (!member(w, 0) || !member(w, 1) || !member(w, 2))
#endif

/* A URL arrives in its partition; a known one is not queued again. */
inline enter(n) {
    if
    :: state[n] == unseen -> state[n] = queued
    :: else
    fi
}

/* A child of a URL in partition p, within the step that acks the URL. */
inline child(p, n) {
    if
    :: n >= URLS
    :: n < URLS && home(n) == p -> enter(n)
    :: n < URLS && home(n) != p ->
        last[pair(p, home(n))]++;
        assert(last[pair(p, home(n))] < ENTRIES_MAX);
        entry[pair(p, home(n)) * ENTRIES_MAX + last[pair(p, home(n))]] = n
    fi
}

#ifdef CHAIN
#define children(n) child(home(n), n + 1)
#else
#define children(n) child(home(n), n + 1); child(home(n), n + 2)
#endif

/* The name of this worker is abandoned; it will expire. */
inline disown(w) {
    i = 0;
    do
    :: i < URLS -> if :: has(w, i) -> owner[i] = NOBODY :: else fi; i++
    :: else -> break
    od;
    i = 0
}

/* Join everywhere with a new name. The seed is a record like any other, pushed by all workers, accepted once. */
inline join(w) {
    i = 0;
    do
    :: i < PARTITIONS -> member(w, i) = true; i++
    :: else -> break
    od;
    i = 0;
    if
    :: state[0] == unseen -> state[0] = queued; arrived[0]++; outside++
    :: else
    fi
}

#if PARTITIONS == 2
#define taken_by(q) (taken[pair(0, q)] + taken[pair(1, q)])
#else
#define taken_by(q) (taken[pair(0, q)] + taken[pair(1, q)] + taken[pair(2, q)])
#endif
#define expected_arrivals(q) (taken_by(q) + (q == 0 -> outside : 0))

/* Push the slice of an outbox that was read: the numbers after `read` up to `upto`. */
inline push(x, read, upto) {
    i = read + 1;
    do
    :: i <= upto ->
        if
#ifdef NUMBERS_NOT_COMPARED
        :: true ->
#else
        :: i <= taken[x]
        :: i > taken[x] ->
#endif
            taken[x] = i;
            arrived[to_of(x)]++;
            enter(entry[x * ENTRIES_MAX + i])
        fi;
        i++
    :: else -> break
    od;
    i = 0;
    assert(arrived[to_of(x)] == expected_arrivals(to_of(x)))     /* each entry was accepted once: none twice, none skipped */
}

inline trim(x, upto) {
    if
    :: trimmed[x] < upto -> trimmed[x] = upto
    :: else
    fi
#ifdef NUMBERS_RESTART
    ;
    if
    :: trimmed[x] == last[x] -> trimmed[x] = 0; last[x] = 0
    :: else
    fi
#endif
}

/* The steps of a worker. `checked`: its last check failed, so it does available work before the next check. */
#define LEASE(n) :: d_step { leasable(me, n) -> state[n] = leased; owner[n] = me; checked = false }
#define ACK(n) :: d_step { mine(n, leased) -> state[n] = uncommitted; children(n); checked = false }
#define COMMIT(n) :: d_step { mine(n, uncommitted) -> state[n] = done; owner[n] = NOBODY; checked = false }
#define mine(n, s) (n < URLS && owner[n] == me && state[n] == s)

#ifdef READS_FROM_THE_MIDDLE
#define READ(x) :: d_step { holds(x) -> box = x; read = last[x] - 1; upto = last[x]; checked = false }
#else
#define READ(x) :: d_step { holds(x) -> box = x; read = trimmed[x]; upto = last[x]; checked = false }
#endif
#ifdef TRIMS_BEFORE_PUSHING
#define FORWARD(x) READ(x); d_step { trim(box, upto) }; d_step { push(box, read, upto); box = 0; read = 0; upto = 0 }
#else
#define FORWARD(x) READ(x); d_step { push(box, read, upto) }; d_step { trim(box, upto); box = 0; read = 0; upto = 0 }
#endif

#ifdef ARRIVED_NOT_COMPARED
#define same(p) true
#else
#define same(p) (arrived[p] == noted[p])
#endif
#ifdef ONE_ROUND
#define ROUNDS 1
#else
#define ROUNDS 2
#endif
#define ALL_SEEN ((1 << PARTITIONS) - 1)

/* Read the status of one partition; decide with the last of a round. */
#define READ_STATUS(p) :: atomic { !(seen & (1 << p)) -> \
        if \
        :: !member(me, p) -> goto anew \
        :: member(me, p) && (live(p) || (round == 1 && !same(p))) -> checked = true; break \
        :: else -> \
            if :: round == 0 && ROUNDS > 1 -> noted[p] = arrived[p] :: else fi; \
            seen = seen | (1 << p); \
            if \
            :: seen == ALL_SEEN && round + 1 < ROUNDS -> round++; seen = 0 \
            :: seen == ALL_SEEN && round + 1 == ROUNDS -> assert(all_done); finished[me] = true; goto stop \
            :: else \
            fi \
        fi }

inline forget() {
    round = 0; seen = 0; i = 0;
    do
    :: i < PARTITIONS -> noted[i] = 0; i++
    :: else -> break
    od;
    i = 0
}

proctype worker(byte me) {
    byte i, box, read, upto, round, seen;
    byte noted[PARTITIONS];
    bool checked;

again:
    {
        atomic { join(me) };
        do
        LEASE(0) LEASE(1) LEASE(2) LEASE(3)
        ACK(0) ACK(1) ACK(2) ACK(3)
        COMMIT(0) COMMIT(1) COMMIT(2) COMMIT(3)
#if PARTITIONS == 2
        FORWARD(1) FORWARD(2)
#else
        FORWARD(1) FORWARD(2) FORWARD(3) FORWARD(5) FORWARD(6) FORWARD(7)
#endif
        :: refused(me) -> goto anew
#ifdef CONTINUES_AFTER_A_LOST_REPLY
        :: d_step { leasable(me, 1) -> state[1] = leased; owner[1] = STRANDED }
#endif
        :: !busy(me) && !(checked && (can_lease(me) || can_forward)) ->
            do
            READ_STATUS(0) READ_STATUS(1)
#if PARTITIONS > 2
            READ_STATUS(2)
#endif
            od;
            atomic { forget() }
        od
    } unless {
        atomic { killed[me] -> killed[me] = false; if :: dead[me] = true :: skip fi }
    };
anew:
    /* Also for a worker that is refused, or whose call got no reply, so that its effect is unknown. */
    atomic { disown(me); forget(); box = 0; read = 0; upto = 0; checked = false };
    if
    :: !dead[me] -> goto again
    :: dead[me]
    fi;
stop:
    atomic { forget(); box = 0; read = 0; upto = 0; checked = false }
}

/* URLs without a live owner are queued again at some time. */
#define EXPIRE(n) :: d_step { (state[n] == leased || state[n] == uncommitted) && owner[n] == NOBODY -> state[n] = queued }

active proctype expiry() {
end:
    do
#ifdef KILLED_WORKERS_NEVER_EXPIRE
    :: false
#else
    EXPIRE(0) EXPIRE(1) EXPIRE(2) EXPIRE(3)
#endif
    od
}

/* Workers are killed, and live workers expire, at any time but not for ever. */
#define KILL(w) :: d_step { w < WORKERS && kills > 0 && !stopped(w) -> kills--; killed[w] = true }
#define TAKE(w, p, n) if :: has(w, n) && home(n) == p -> state[n] = queued; owner[n] = NOBODY :: else fi
#define PAUSE(w, p) :: d_step { w < WORKERS && pauses > 0 && !stopped(w) && member(w, p) -> \
        pauses--; member(w, p) = false; TAKE(w, p, 0); TAKE(w, p, 1); TAKE(w, p, 2); TAKE(w, p, 3) }

active proctype environment() {
    byte kills = CRASHES, pauses = PAUSES;
end:
    do
    KILL(0) KILL(1)
    PAUSE(0, 0) PAUSE(0, 1) PAUSE(1, 0) PAUSE(1, 1)
#if PARTITIONS > 2
    PAUSE(0, 2) PAUSE(1, 2)
#endif
#if WORKERS > 2
    KILL(2)
    PAUSE(2, 0) PAUSE(2, 1)
#endif
    od
}

init {
    byte w = 0;
    atomic {
        do
        :: w < WORKERS -> run worker(w); w++
        :: else -> break
        od
    }
}

#if WORKERS == 2
#define all_stopped (stopped(0) && stopped(1))
#else
#define all_stopped (stopped(0) && stopped(1) && stopped(2))
#endif

ltl ends { <> all_stopped }
