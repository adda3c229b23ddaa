/* Attention of one head: a few tokens that stand behind the same text share every key and value that is brought near.
 *
 * A token's score of a key, and its sum over values from the first key to the last, do not depend on who else is there.
 */
#define ROWS_AT_ONCE 8 /* tokens */
#define KEYS_AT_ONCE 32
#define FOUR _Pragma("GCC unroll 4")
#define EACH_SUMMED _Pragma("GCC unroll 16")
#define ROWS_SUMMED 4 /* tokens whose sums over values are made together, so that none waits for its last addition */
#if SUMMED == 16
#define COLUMNS 4 /* of their sums, in lanes: as many as there are registers */
#else
#define COLUMNS 1
#endif

/* What each token sees: `near` of the slots from `start` on, then `own` of those from `first` on. */
typedef struct { const int32_t *slots, *start, *near, *first, *own; } Plan;

/* One head: keys and values [room, size]. */
typedef struct {
    const float *keys, *values;
    int size;
    float scale;
} Head;

/* How well a query fits the keys of `count` slots. */
static void score_keys(const Head *head, const float *query, const int32_t *slots, int count, float *scores) {
    int size = head->size, k = 0;
    for (; k + SUMMED <= count; k += SUMMED) {
        F dot[SUMMED], q = f_load(query);
        EACH_SUMMED
        for (int j = 0; j < SUMMED; j++) dot[j] = f_mul(q, f_load(head->keys + (long long)slots[k + j] * size));
        for (int i = LANES; i < size; i += LANES) {
            q = f_load(query + i);
            EACH_SUMMED
            for (int j = 0; j < SUMMED; j++) dot[j] = f_fma(q, f_load(head->keys + (long long)slots[k + j] * size + i), dot[j]);
        }
        f_sums(dot, scores + k);
    }
    for (; k < count; k++) {
        const float *key = head->keys + (long long)slots[k] * size;
        F dot = f_mul(f_load(query), f_load(key));
        for (int i = LANES; i < size; i += LANES) dot = f_fma(f_load(query + i), f_load(key + i), dot);
        scores[k] = f_sum(dot);
    }
}

/* Make weights of the scores of `all` keys, which are not yet divided by the sum that is returned. */
static float weigh(float *scores, int all, float scale) {
    F most = f_splat(-INFINITY), sum = f_splat(0), by = f_splat(scale);
    int wide = (all + LANES - 1) / LANES * LANES;
    for (int k = all; k < wide; k++) scores[k] = -INFINITY;
    for (int k = 0; k < wide; k += LANES) {
        F score = f_mul(f_load(scores + k), by);
        f_store(scores + k, score);
        most = f_max(most, score);
    }
    F top = f_splat(-f_most(most));
    for (int k = 0; k < wide; k += LANES) {
        F p = f_exp(f_add(f_load(scores + k), top));
        if (k + LANES > all) { /* those that fill up weigh nothing */
            float some[LANES];
            f_store(some, p);
            for (int i = all - k; i < LANES; i++) some[i] = 0;
            p = f_load(some);
        }
        f_store(scores + k, p);
        sum = f_add(sum, p);
    }
    return f_sum(sum);
}

/* Add the values of `count` slots by their weights, in their order. */
static void add_values(const Head *head, const float *weights, const int32_t *slots, int count, float *to) {
    int size = head->size, i = 0;
    for (; i + 4 * LANES <= size; i += 4 * LANES) {
        F some[4];
        FOUR
        for (int j = 0; j < 4; j++) some[j] = f_load(to + i + j * LANES);
        for (int k = 0; k < count; k++) {
            const float *value = head->values + (long long)slots[k] * size + i;
            F p = f_splat(weights[k]);
            FOUR
            for (int j = 0; j < 4; j++) some[j] = f_fma(p, f_load(value + j * LANES), some[j]);
        }
        FOUR
        for (int j = 0; j < 4; j++) f_store(to + i + j * LANES, some[j]);
    }
    for (; i < size; i += LANES) {
        F some = f_load(to + i);
        for (int k = 0; k < count; k++)
            some = f_fma(f_splat(weights[k]), f_load(head->values + (long long)slots[k] * size + i), some);
        f_store(to + i, some);
    }
}

/* The same for a few tokens, whose weights and outcomes stand `apart` and `gathered` numbers apart. */
static void add_values_together(const Head *head, const float *weights, long long apart, const int32_t *slots, int count, float *to,
                                long long gathered) {
    int size = head->size;
    for (int i = 0; i + COLUMNS * LANES <= size; i += COLUMNS * LANES) {
        F some[ROWS_SUMMED][COLUMNS];
        FOUR
        for (int r = 0; r < ROWS_SUMMED; r++)
            FOUR
            for (int j = 0; j < COLUMNS; j++) some[r][j] = f_load(to + r * gathered + i + j * LANES);
        for (int k = 0; k < count; k++) {
            const float *value = head->values + (long long)slots[k] * size + i;
            FOUR
            for (int j = 0; j < COLUMNS; j++) {
                F x = f_load(value + j * LANES);
                FOUR
                for (int r = 0; r < ROWS_SUMMED; r++) some[r][j] = f_fma(f_splat(weights[r * apart + k]), x, some[r][j]);
            }
        }
        FOUR
        for (int r = 0; r < ROWS_SUMMED; r++)
            FOUR
            for (int j = 0; j < COLUMNS; j++) f_store(to + r * gathered + i + j * LANES, some[r][j]);
    }
}

/* What a head gathers for tokens first…first+count: queries and outcomes stand `wide` and `gathered` numbers apart, and
 * scores [count, longest] are its own. */
static void attend_rows(const Head *head, const Plan *plan, int first, int count, const float *query, long long wide, float *scores,
                        int longest, float *to, long long gathered) {
    const int32_t *slots = plan->slots + plan->start[first];
    int common = plan->near[first]; /* keys that all of them see, one behind the other */
    for (int r = 1; r < count; r++) {
        if (plan->start[first + r] != plan->start[first]) common = 0;
        if (plan->near[first + r] < common) common = plan->near[first + r];
    }
    if (count == 1) common = 0;
    for (int k = 0; k < common; k += KEYS_AT_ONCE)
        for (int r = 0; r < count; r++)
            score_keys(head, query + r * wide, slots + k, common - k < KEYS_AT_ONCE ? common - k : KEYS_AT_ONCE,
                       scores + (long long)r * longest + k);
    float inverse[ROWS_AT_ONCE];
    for (int r = 0; r < count; r++) {
        int token = first + r, near = plan->near[token], own = plan->own[token];
        float *mine = scores + (long long)r * longest;
        score_keys(head, query + r * wide, plan->slots + plan->start[token] + common, near - common, mine + common);
        score_keys(head, query + r * wide, plan->slots + plan->first[token], own, mine + near);
        inverse[r] = 1 / weigh(mine, near + own, head->scale);
        memset(to + r * gathered, 0, sizeof(float) * (size_t)head->size);
    }
    int fours = head->size % (COLUMNS * LANES) ? 0 : count / ROWS_SUMMED * ROWS_SUMMED;
    for (int k = 0; k < common; k += KEYS_AT_ONCE) {
        int some = common - k < KEYS_AT_ONCE ? common - k : KEYS_AT_ONCE;
        for (int r = 0; r < fours; r += ROWS_SUMMED)
            add_values_together(head, scores + (long long)r * longest + k, longest, slots + k, some, to + r * gathered, gathered);
        for (int r = fours; r < count; r++)
            add_values(head, scores + (long long)r * longest + k, slots + k, some, to + r * gathered);
    }
    for (int r = 0; r < count; r++) {
        int token = first + r, near = plan->near[token];
        float *mine = scores + (long long)r * longest, *sum = to + r * gathered;
        add_values(head, mine + common, plan->slots + plan->start[token] + common, near - common, sum);
        add_values(head, mine + near, plan->slots + plan->first[token], plan->own[token], sum);
        for (int i = 0; i < head->size; i += LANES) f_store(sum + i, f_mul(f_load(sum + i), f_splat(inverse[r])));
    }
}
