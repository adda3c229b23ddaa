/* What Python calls: products of packed matrices, and whole forwards over them. */
#define _GNU_SOURCE
#include <stdlib.h>

#include "simd.h"
#include "threads.h"

#include "tiles.h"
#include "product.h"

const char *level(void) { return LEVEL; }

static int rounded_alloc(Rounded *x, int rows, int in) {
    size_t all = ((size_t)rows + AT_ONCE - 1) / AT_ONCE * AT_ONCE, blocks = (size_t)in / BLOCK;
    x->in = in, x->rows = rows;
    x->q = calloc(all, (size_t)in);
    x->scale = calloc(all * blocks, sizeof(float));
    x->sum = calloc(all * blocks, sizeof(float));
    x->halves = calloc(all * blocks * 2, sizeof(int32_t));
    return x->q && x->scale && x->sum && x->halves;
}

static void rounded_free(Rounded *x) { free(x->q), free(x->scale), free(x->sum), free(x->halves); }

/* Matrices side by side, of the rounded rows, into y with `stride` numbers a row. */
static void products(int *phase, const Matrix *w, int count, const Rounded *x, int rows, float *y, long long stride,
                     int add) {
    int tiles = 0;
    for (int i = 0; i < count; i++) tiles += (w[i].out + LANES - 1) / LANES;
    Pieces p = pieces(phase, tiles);
    while (some(&p))
        for (int t = p.from; t < p.to; t++) {
            int i = 0, number = t;
            float *at = y;
            for (; number >= (w[i].out + LANES - 1) / LANES; i++) number -= (w[i].out + LANES - 1) / LANES, at += w[i].out;
            product(w + i, number, x, rows, at, stride, add);
        }
    finish(&p);
}

typedef struct {
    const Matrix *w;
    const float *x;
    float *y;
    long long out;
    Rounded rounded;
    int count, rows;
} Product;

static void one_product(void *arg, int thread) {
    Product *job = arg;
    int phase = 0, in = job->w->in;
    (void)thread;
    Pieces p = pieces(&phase, parts_of(job->rows));
    while (some(&p))
        for (int unit = p.from; unit < p.to; unit++) {
            Part part = part_of(unit, job->rows, in);
            for (int r = part.row; r < part.end; r++)
                round_blocks(job->x + (long long)r * in, in, &job->rounded, r, part.from, part.until);
        }
    finish(&p);
    products(&phase, job->w, job->count, &job->rounded, job->rows, job->y, job->out, 0);
}

/* y = x·Wᵀ + b for x [rows, in] and `count` matrices side by side; 0 if there was no memory for it. */
int multiply(const Matrix *w, int count, const float *x, float *y, int rows, int threads) {
    Product job = {.w = w, .x = x, .y = y, .count = count, .rows = rows};
    for (int i = 0; i < count; i++) job.out += w[i].out;
    int fits = rounded_alloc(&job.rounded, rows, w->in);
    if (fits) together(one_product, &job, threads, 2);
    rounded_free(&job.rounded);
    return fits;
}

#include "attend.h"
#include "best.h"
#include "forward.h"
#include "step.h"
#include "heads.h"
