/* Products of packed weights: the 16 outputs of a tile at once, by whole numbers.
 *
 * Inputs are rounded to int8, 32 with one scale; the products of a block are summed as whole numbers, and blocks in
 * their order as floats. So what a row gives depends on that row alone, not on how many are computed beside it or by
 * how many threads.
 */
#define FORESEEN 4096 /* bytes */

#ifdef __AVX2__
#define IN_REGISTERS 1
#define EVERY_ROW _Pragma("GCC unroll 8") /* so that the sums of all rows stay in registers */
#define ONE_BY_ONE _Pragma("GCC unroll 1") /* so that no more weights are unpacked than there are registers */
#else
#define IN_REGISTERS 0
#define EVERY_ROW
#define ONE_BY_ONE
#endif

/* Rows of inputs in whole numbers: x = scale·q, 32 with one scale; sums of q over halves of a block, and scale·sum.
 *
 * Rows that are multiplied together lie together: four numbers of each, then the next four of each, and so their scales
 * and sums. A product then walks over its weights and its inputs with one pointer each.
 */
typedef struct {
    int8_t *q;
    float *scale, *sum;
    int32_t *halves;
    int in, rows;
} Rounded;

/* How many rows are multiplied together where so many are left; places without a row are computed for nobody. */
INLINE int width_of(int left) {
    if (left >= AT_ONCE || (!IN_REGISTERS && left > 1)) return AT_ONCE;
    return AT_ONCE == 8 && left > 4 ? 8 : AT_ONCE == 8 && left == 3 ? 4 : left;
}

/* Round the blocks from…until of a row x of `in` numbers. */
static void round_blocks(const float *x, int in, Rounded *to, int row, int from, int until) {
    int blocks = in / BLOCK, first = row / AT_ONCE * AT_ONCE, width = width_of(to->rows - first), r = row - first;
    long long at = (long long)first * blocks + (long long)from * width + r;
    int8_t *q = to->q + (long long)first * in + (long long)from * width * BLOCK + 4 * r, some[BLOCK];
    float *scale = to->scale + at, *sum = to->sum + at;
    int32_t *halves = to->halves + 2 * at;
    F nothing = f_splat(0); /* or NaN, if a number is not finite */
    x += from * BLOCK;
    for (int b = from; b < until; b++, x += BLOCK, scale += width, sum += width, halves += 2 * width) {
        F one = f_load(x), two = f_load(x + LANES);
        nothing = f_fma(f_add(one, two), f_splat(0), nothing);
        float most = f_most(f_max(f_abs(one), f_abs(two)));
        F inverse = f_splat(most > 1e-36f ? 127 / most : 0), top = f_splat(127), low = f_splat(-127); /* which is finite */
        *scale = most / 127;
        halves[0] = f_round(f_min(f_max(f_mul(one, inverse), low), top), some); /* of NaN and low, low */
        halves[1] = f_round(f_min(f_max(f_mul(two, inverse), low), top), some + LANES);
        *sum = *scale * (float)(halves[0] + halves[1]);
        for (int g = 0; g < BLOCK / 4; g++, q += 4 * width) memcpy(q, some + 4 * g, 4);
    }
    if (f_sum(nothing) != 0)
        for (int b = 1; b <= until - from; b++) scale[-b * width] = sum[-b * width] = NAN;
}

static void round_row(const float *x, int in, Rounded *to, int row) { round_blocks(x, in, to, row, 0, in / BLOCK); }

/* Rows that are multiplied together lie among each other, so that two threads that round a row each would write to the
 * same lines of memory and wait for them. A unit of the work is a part of the columns, of all rows that lie together. */
#define PARTS 4
typedef struct { int row, end, from, until; } Part; /* rows, and blocks of each */

INLINE int parts_of(int rows) { return rows == 1 ? 1 : (rows + AT_ONCE - 1) / AT_ONCE * PARTS; }
INLINE Part part_of(int unit, int rows, int in) {
    int blocks = in / BLOCK, parts = rows == 1 ? 1 : PARTS, part = unit % parts, row = unit / parts * AT_ONCE;
    return (Part){row, rows - row < AT_ONCE ? rows : row + AT_ONCE, part * blocks / parts & ~3,
                  part == parts - 1 ? blocks : (part + 1) * blocks / parts & ~3};
}

/* What the inputs of one group, four of a block, add to the sums of n rows. */
INLINE void group_product(const int n, W w, const int8_t *q, int group, A *sums) {
    EVERY_ROW
    for (int r = 0; r < n; r++) sums[r] = a_dot(sums[r], w, q + 4 * (n * group + r));
}

/* What a block adds to the whole numbers of n rows, where its weights have 4 bits: 16 bits hold 8 · 2 · 15 · 127. */
INLINE void nibbles_product(const int n, const uint8_t *p, const int8_t *q, I *sums) {
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
INLINE void bytes_product(const int n, const uint8_t *p, const int8_t *q, I *sums) {
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
INLINE void six_bits_product(const int n, const int second, const uint8_t *p, const int8_t *q, I *sums) {
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
INLINE void wide_product(const int n, const uint8_t *p, const int8_t *q, I *sums) {
    ONE_BY_ONE
    for (int g = 0; g < 8; g++) {
        W w = w_load(p + 64 * g);
        EVERY_ROW
        for (int r = 0; r < n; r++) sums[r] = i_dot_wide(sums[r], w, q + 4 * (n * g + r));
    }
}

/* The inputs of n rows from some block on. */
typedef struct {
    const int8_t *q;
    const float *scale, *sum;
    const int32_t *halves;
} Inputs;

/* One block of 16 outputs times n rows: scale d, least m; of Q6_K d and m are the scales of its halves. */
INLINE void block_product(const int kind, const int n, const uint8_t *p, F d, F m, Inputs *x, F *sums) {
    const int wide = kind == Q8_0, offset = wide && SIGNED_BYTES ? 0 : offset_of(kind);
    I whole[AT_ONCE], second[AT_ONCE];
    EVERY_ROW
    for (int r = 0; r < n; r++) {
        const int32_t *h = x->halves + 2 * r;
        whole[r] = i_splat(offset ? -offset * (kind == Q6_K ? h[0] : h[0] + h[1]) : 0);
        if (kind == Q6_K) second[r] = i_splat(-offset * h[1]);
    }
    if (kind == Q6_K) six_bits_product(n, 0, p, x->q, whole), six_bits_product(n, 1, p, x->q, second);
    else if (wide) wide_product(n, p, x->q, whole);
    else if (in_bytes(kind)) bytes_product(n, p, x->q, whole);
    else nibbles_product(n, p, x->q, whole);
    EVERY_ROW
    for (int r = 0; r < n; r++) {
        F by = f_splat(x->scale[r]);
        if (kind == Q6_K) {
            F both = f_fma(d, f_of(whole[r]), f_mul(m, f_of(second[r])));
            sums[r] = f_fma(both, by, sums[r]);
            continue;
        }
        sums[r] = f_fma(f_mul(d, by), f_of(whole[r]), sums[r]);
        if (has_least(kind)) sums[r] = f_fma(m, f_splat(x->sum[r]), sums[r]);
    }
    x->q += n * BLOCK, x->scale += n, x->sum += n, x->halves += 2 * n;
}

/* Have the memory that is multiplied a little later brought near: what the processor foresees ends with a page. */
INLINE void foresee(const uint8_t *p, const int size) {
    _Pragma("GCC unroll 16")
    for (int i = 0; i < size; i += 64) __builtin_prefetch(p + FORESEEN + i);
}

INLINE void tile_product(const int kind, const int n, const uint8_t *p, const Rounded *rows, int row, F *sums) {
    int blocks = rows->in / BLOCK;
    long long at = (long long)row * blocks;
    Inputs x = {rows->q + at * BLOCK, rows->scale + at, rows->sum + at, rows->halves + 2 * at};
    EVERY_ROW
    for (int r = 0; r < n; r++) sums[r] = f_splat(0);
    for (int b = 0; b < blocks; b += is_super(kind) ? 8 : 1) {
        F d, m = f_splat(0);
        if (!is_super(kind)) {
            d = f_halves(p);
            if (has_least(kind)) m = f_halves(p + 32);
            foresee(p, block_bytes(kind));
            block_product(kind, n, p + scale_bytes(kind), d, m, &x, sums);
            p += block_bytes(kind);
            continue;
        }
        d = f_halves(p);
        if (kind != Q6_K) m = f_mul(f_halves(p + 32), f_splat(-1));
        p += head_bytes(kind);
        for (int part = 0; part < 8; part++, p += block_bytes(kind)) {
            F scale = f_mul(d, kind == Q6_K ? f_signed(p) : f_bytes(p));
            F other = f_mul(kind == Q6_K ? d : m, kind == Q6_K ? f_signed(p + 16) : f_bytes(p + 16));
            foresee(p, block_bytes(kind));
            block_product(kind, n, p + 32, scale, other, &x, sums);
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
        switch (width_of(left)) {
        case 1: ROWS(1); break;
        case 2: ROWS(2); break;
        case 3: ROWS(3); break;
        case 4: ROWS(4); break;
        default: ROWS(AT_ONCE);
        }
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
