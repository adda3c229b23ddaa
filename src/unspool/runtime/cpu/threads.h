/* A pool of threads that do a job together, phase by phase, each taking pieces that nobody does yet.
 *
 * A phase ends when its pieces are done, not when all threads have come by: one that the system has put aside between two
 * pieces holds nobody up, and one that comes late to a job finds it done.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#define MOST_THREADS 64
#define PHASES 8192 /* of one job */
#define SPINS 1000  /* looks of a waiting thread before it lets others run */

#if defined(__x86_64__)
#define PAUSE() __builtin_ia32_pause()
#else
#define PAUSE() ((void)0)
#endif

typedef void Work(void *arg, int thread);

static struct {
    pthread_mutex_t one, lock; /* one job at a time; the lock guards those who sleep */
    pthread_cond_t wake;
    int size, threads;
    Work *work;
    void *arg;
    atomic_int number, open, inside;            /* jobs so far; the number of the one that runs; workers at it */
    atomic_int taken[PHASES], finished[PHASES]; /* how much of each phase somebody does, and has done */
} pool = {.one = PTHREAD_MUTEX_INITIALIZER, .lock = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER,
          .size = 1};

/* A forked child has none of these threads, but locks that they may have held and a condition that they wait for. */
static void forget_threads(void) {
    pthread_mutex_init(&pool.one, 0), pthread_mutex_init(&pool.lock, 0), pthread_cond_init(&pool.wake, 0);
    atomic_store(&pool.number, 0), atomic_store(&pool.open, 0), atomic_store(&pool.inside, 0);
    pool.size = 1;
}

__attribute__((constructor)) static void watch_forks(void) { pthread_atfork(0, 0, forget_threads); }

static void linger(int *looks) {
    if (++*looks > SPINS) sched_yield();
    else PAUSE();
}

static void *attend(void *number) {
    int thread = (int)(intptr_t)number, seen = 0;
    for (;;) {
        for (int i = 0; atomic_load(&pool.number) == seen && i < SPINS; i++) PAUSE();
        if (atomic_load(&pool.number) == seen) {
            pthread_mutex_lock(&pool.lock);
            while (atomic_load(&pool.number) == seen) pthread_cond_wait(&pool.wake, &pool.lock);
            pthread_mutex_unlock(&pool.lock);
        }
        seen = atomic_load(&pool.number);
        atomic_fetch_add(&pool.inside, 1);
        if (atomic_load(&pool.open) == seen && thread < pool.threads) pool.work(pool.arg, thread);
        atomic_fetch_sub(&pool.inside, 1);
    }
    return 0;
}

/* The pieces of a phase: `while (some(&pieces))` gives a thread from…to that nobody does yet; `finish` ends the phase. */
typedef struct { int phase, count, step, from, to; } Pieces;

static Pieces pieces(int *phase, int count) {
    int step = count / (pool.threads * 4);
    return (Pieces){(*phase)++, count, step < 1 ? 1 : step, 0, 0};
}

static int some(Pieces *p) {
    if (p->to > p->from) atomic_fetch_add_explicit(&pool.finished[p->phase], p->to - p->from, memory_order_release);
    p->from = atomic_fetch_add_explicit(&pool.taken[p->phase], p->step, memory_order_relaxed);
    p->to = p->from + p->step < p->count ? p->from + p->step : p->count;
    return p->from < p->count;
}

static void finish(const Pieces *p) {
    int looks = 0;
    while (atomic_load_explicit(&pool.finished[p->phase], memory_order_acquire) < p->count) linger(&looks);
}

/* Let up to `threads` threads do a job of `phases` phases, this one among them. */
static void together(Work *work, void *arg, int threads, int phases) {
    pthread_mutex_lock(&pool.one);
    if (threads > MOST_THREADS) threads = MOST_THREADS;
    for (; pool.size < threads; pool.size++) {
        pthread_t made;
        pthread_attr_t attr;
        pthread_attr_init(&attr);
        pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
        int failed = pthread_create(&made, &attr, attend, (void *)(intptr_t)pool.size);
        pthread_attr_destroy(&attr);
        if (failed) break; /* with fewer it takes longer */
    }
    pool.threads = threads < pool.size ? threads : pool.size;
    pool.work = work, pool.arg = arg;
    for (int i = 0; i < phases; i++) {
        atomic_store_explicit(&pool.taken[i], 0, memory_order_relaxed);
        atomic_store_explicit(&pool.finished[i], 0, memory_order_relaxed);
    }
    if (pool.threads > 1) {
        int number = atomic_load(&pool.number) + 1;
        if (number < 1) number = 1;
        pthread_mutex_lock(&pool.lock);
        atomic_store(&pool.open, number), atomic_store(&pool.number, number);
        pthread_cond_broadcast(&pool.wake);
        pthread_mutex_unlock(&pool.lock);
    }
    work(arg, 0);
    atomic_store(&pool.open, 0);
    for (int looks = 0; atomic_load(&pool.inside);) linger(&looks);
    pthread_mutex_unlock(&pool.one);
}
