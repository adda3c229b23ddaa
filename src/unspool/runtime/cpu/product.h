/* Products of packed weights: the 16 outputs of a tile at once, by whole numbers.
 *
 * Inputs are rounded to int8, 32 with one scale; the products of a block are summed as whole numbers, and blocks in
 * their order as floats. So what a row gives depends on that row alone, not on how many are computed beside it or by
 * how many threads.
 */
#ifdef __AVX2__
#define IN_REGISTERS 1
#define EVERY_ROW _Pragma("GCC unroll 8") /* so that the sums of all rows stay in registers */
#define ONE_BY_ONE _Pragma("GCC unroll 1") /* so that no more weights are unpacked than there are registers */
#else
#define IN_REGISTERS 0
#define EVERY_ROW
#define ONE_BY_ONE
#endif

/* Rows of inputs in whole numbers: x = scale·q, 32 with one scale; sums of q over halves of a block, and scale·sum. */
typedef struct {
    int8_t *q;
    float *scale, *sum;
    int32_t *halves;
    int in;
} Rounded;

static void round_row(const float *x, int in, Rounded *to, int row) {
    int blocks = in / BLOCK;
    int8_t *q = to->q + (long long)row * in;
    float *scale = to->scale + (long long)row * blocks, *sum = to->sum + (long long)row * blocks;
    int32_t *halves = to->halves + 2ll * row * blocks;
    F nothing = f_splat(0); /* or NaN, if a number is not finite */
    for (int b = 0; b < blocks; b++, x += BLOCK, q += BLOCK) {
        F first = f_load(x), second = f_load(x + LANES);
        nothing = f_fma(f_add(first, second), f_splat(0), nothing);
        float most = f_most(f_max(f_abs(first), f_abs(second)));
        F inverse = f_splat(most > 1e-36f ? 127 / most : 0), top = f_splat(127), low = f_splat(-127); /* which is finite */
        scale[b] = most / 127;
        halves[2 * b] = f_round(f_min(f_max(f_mul(first, inverse), low), top), q); /* of NaN and low, low */
        halves[2 * b + 1] = f_round(f_min(f_max(f_mul(second, inverse), low), top), q + LANES);
        sum[b] = scale[b] * (float)(halves[2 * b] + halves[2 * b + 1]);
    }
    if (f_sum(nothing) != 0)
        for (int b = 0; b < blocks; b++) scale[b] = sum[b] = NAN;
}

INLINE int32_t four(const int8_t *q) {
    int32_t x;
    memcpy(&x, q, 4);
    return x;
}

/* What the inputs of one group, four of a block, add to the sums of n rows. */
INLINE void group_product(const int n, W w, const int8_t *const *q, int group, A *sums) {
    EVERY_ROW
    for (int r = 0; r < n; r++) sums[r] = a_dot(sums[r], w, four(q[r] + 4 * group));
}

/* What a block adds to the whole numbers of n rows, where its weights have 4 bits: 16 bits hold 8 · 2 · 15 · 127. */
INLINE void nibbles_product(const int n, const uint8_t *p, const int8_t *const *q, I *sums) {
    A few[AT_ONCE];
    EVERY_ROW
    for (int r = 0; r < n; r++) few[r] = a_begin(sums[r]);
    ONE_BY_ONE
    for (int g = 0; g < 4; g++) {
        W c = w_load(p + 64 * g);
        group_product(n, w_low(c), q, g, few);
        group_product(n, w_high(c), q, g + 4, few);
    }
    EVERY_ROW
    for (int r = 0; r < n; r++) sums[r] = a_end(sums[r], few[r]);
}

/* The same for weights in bytes, of 5 bits: 16 bits hold 4 · 2 · 31 · 127. */
INLINE void bytes_product(const int n, const uint8_t *p, const int8_t *const *q, I *sums) {
    ONE_BY_ONE
    for (int half = 0; half < 8; half += 4) {
        A few[AT_ONCE];
        EVERY_ROW
        for (int r = 0; r < n; r++) few[r] = a_begin(sums[r]);
        ONE_BY_ONE
        for (int g = half; g < half + 4; g++) group_product(n, w_load(p + 64 * g), q, g, few);
        EVERY_ROW
        for (int r = 0; r < n; r++) sums[r] = a_end(sums[r], few[r]);
    }
}

/* The same for half a block of 6 bits, the first or the second: 16 bits hold 2 · 2 · 63 · 127. */
INLINE void six_bits_product(const int n, const int second, const uint8_t *p, const int8_t *const *q, I *sums) {
    EVERY_ROW
    for (int pair = 0; pair < 2; pair++) {
        A few[AT_ONCE];
        EVERY_ROW
        for (int r = 0; r < n; r++) few[r] = a_begin(sums[r]);
        ONE_BY_ONE
        for (int i = 0; i < 2; i++) {
            W c = w_load(p + 64 * (2 * pair + i)), bits = w_load(p + 256 + 64 * i);
            group_product(n, w_pair(second ? w_high(c) : w_low(c), bits, 4 * second + 2 * pair), q, 4 * second + 2 * pair + i, few);
        }
        EVERY_ROW
        for (int r = 0; r < n; r++) sums[r] = a_end(sums[r], few[r]);
    }
}

/* The same for 8 bits, which fit 16 bits one at a time. */
INLINE void wide_product(const int n, const uint8_t *p, const int8_t *const *q, I *sums) {
    ONE_BY_ONE
    for (int g = 0; g < 8; g++) {
        W w = w_load(p + 64 * g);
        EVERY_ROW
        for (int r = 0; r < n; r++) sums[r] = i_dot_wide(sums[r], w, four(q[r] + 4 * g));
    }
}

/* One block of 16 outputs times n rows: scale d, least m; of Q6_K d and m are the scales of its halves. */
INLINE void block_product(const int kind, const int n, const uint8_t *p, F d, F m, const Rounded *x, int row, int b, F *sums) {
    const int wide = kind == Q8_0, offset = wide && SIGNED_BYTES ? 0 : offset_of(kind);
    const int8_t *q[AT_ONCE];
    I whole[AT_ONCE], second[AT_ONCE];
    long long at = (long long)row * (x->in / BLOCK) + b, blocks = x->in / BLOCK;
    EVERY_ROW
    for (int r = 0; r < n; r++) {
        const int32_t *h = x->halves + 2 * (at + r * blocks);
        q[r] = x->q + (at + r * blocks) * BLOCK;
        whole[r] = i_splat(offset ? -offset * (kind == Q6_K ? h[0] : h[0] + h[1]) : 0);
        if (kind == Q6_K) second[r] = i_splat(-offset * h[1]);
    }
    if (kind == Q6_K) six_bits_product(n, 0, p, q, whole), six_bits_product(n, 1, p, q, second);
    else if (wide) wide_product(n, p, q, whole);
    else if (in_bytes(kind)) bytes_product(n, p, q, whole);
    else nibbles_product(n, p, q, whole);
    EVERY_ROW
    for (int r = 0; r < n; r++) {
        F by = f_splat(x->scale[at + r * blocks]);
        if (kind == Q6_K) {
            F both = f_fma(d, f_of(whole[r]), f_mul(m, f_of(second[r])));
            sums[r] = f_fma(both, by, sums[r]);
            continue;
        }
        sums[r] = f_fma(f_mul(d, by), f_of(whole[r]), sums[r]);
        if (has_least(kind)) sums[r] = f_fma(m, f_splat(x->sum[at + r * blocks]), sums[r]);
    }
}

INLINE void tile_product(const int kind, const int n, const uint8_t *p, const Rounded *x, int row, F *sums) {
    EVERY_ROW
    for (int r = 0; r < n; r++) sums[r] = f_splat(0);
    int blocks = x->in / BLOCK;
    for (int b = 0; b < blocks;) {
        F d, m = f_splat(0);
        if (!is_super(kind)) {
            d = f_halves(p);
            if (has_least(kind)) m = f_halves(p + 32);
            block_product(kind, n, p + scale_bytes(kind), d, m, x, row, b++, sums);
            p += block_bytes(kind);
            continue;
        }
        d = f_halves(p);
        if (kind != Q6_K) m = f_mul(f_halves(p + 32), f_splat(-1));
        p += head_bytes(kind);
        for (int part = 0; part < 8; part++, p += block_bytes(kind)) {
            F scale = f_mul(d, kind == Q6_K ? f_signed(p) : f_bytes(p));
            F other = f_mul(kind == Q6_K ? d : m, kind == Q6_K ? f_signed(p + 16) : f_bytes(p + 16));
            block_product(kind, n, p + 32, scale, other, x, row, b++, sums);
        }
    }
}

/* y[row, first…first+16) for rows row…row+n of x; `add` adds to what stands there. */
INLINE void few_rows(const int kind, const int n, const uint8_t *p, const float *bias, int out, int first,
                     const Rounded *x, int row, int rows, float *y, long long stride, int add) {
    F sums[AT_ONCE];
    tile_product(kind, n, p, x, row, sums);
    EVERY_ROW
    for (int r = 0; r < n; r++) {
        if (r >= rows) break;
        float *to = y + (row + r) * stride + first;
        if (bias) {
            float some[LANES] = {0};
            memcpy(some, bias + first, sizeof(float) * (size_t)(out - first < LANES ? out - first : LANES));
            sums[r] = f_add(sums[r], f_load(some));
        }
        if (out - first >= LANES) f_store(to, add ? f_add(f_load(to), sums[r]) : sums[r]);
        else {
            float some[LANES];
            f_store(some, sums[r]);
            for (int o = 0; o < out - first; o++) to[o] = add ? to[o] + some[o] : some[o];
        }
    }
}

typedef struct {
    int kind, out, in;
    const uint8_t *tiles;
    const float *bias;
} Matrix;

INLINE void tile_rows(const int kind, const Matrix *w, int number, const Rounded *x, int rows, float *y, long long stride, int add) {
    long long size = is_super(kind) ? (head_bytes(kind) + 8 * block_bytes(kind)) * (w->in / 256ll) : block_bytes(kind) * (w->in / 32ll);
    const uint8_t *p = w->tiles + number * size;
    int first = number * LANES;
    for (int row = 0; row < rows;) {
        int left = rows - row;
#define ROWS(n) few_rows(kind, n, p, w->bias, w->out, first, x, row, left, y, stride, add), row += n
        if (left == 1) ROWS(1);
        else if (left == 2 && IN_REGISTERS) ROWS(2);
        else if (left == 3 && IN_REGISTERS && AT_ONCE == 4) ROWS(3);
        else if (left <= 4 || AT_ONCE == 4) ROWS(4);
        else ROWS(AT_ONCE);
#undef ROWS
    }
}

/* The outputs of one tile for all rows. Buffers of x reach up to the next multiple of AT_ONCE rows. */
static void product(const Matrix *w, int number, const Rounded *x, int rows, float *y, long long stride, int add) {
    switch (w->kind) {
    case Q4_0: tile_rows(Q4_0, w, number, x, rows, y, stride, add); break;
    case Q4_1: tile_rows(Q4_1, w, number, x, rows, y, stride, add); break;
    case Q5_0: tile_rows(Q5_0, w, number, x, rows, y, stride, add); break;
    case Q5_1: tile_rows(Q5_1, w, number, x, rows, y, stride, add); break;
    case Q8_0: tile_rows(Q8_0, w, number, x, rows, y, stride, add); break;
    case Q4_K: tile_rows(Q4_K, w, number, x, rows, y, stride, add); break;
    case Q5_K: tile_rows(Q5_K, w, number, x, rows, y, stride, add); break;
    case Q6_K: tile_rows(Q6_K, w, number, x, rows, y, stride, add); break;
    }
}
