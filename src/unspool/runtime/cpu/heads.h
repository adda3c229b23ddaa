/* Heads that look ahead: guesses of the next few tokens after a state and the token that follows it. */
typedef struct {
    const Matrix *first, *read, *rest, *common; /* all heads side by side; or NULL; [heads, blocks]; the output matrix */
    int heads, blocks, dim;
} Heads;

typedef struct {
    const Heads *of;
    const float *state;
    float *word, *x, *bent, *logits; /* [dim]; [heads, dim] each; [heads, common outputs] */
    Rounded one, *each, all;         /* of the state and the word, of each head by itself, of all of them */
    float *values;                   /* [heads, k], and tokens */
    int32_t *tokens;
    double *totals; /* [heads] */
    int k;
} Guess;

static void bend_into(float *x, const float *y, int size) { /* x += silu(y) */
    for (int i = 0; i < size; i += LANES) {
        F a = f_load(y + i), e = f_exp(f_mul(a, f_splat(-1)));
        f_store(x + i, f_add(f_load(x + i), f_div(a, f_add(e, f_splat(1)))));
    }
}

static void all_heads(void *arg, int thread) {
    Guess *g = arg;
    const Heads *of = g->of;
    int phase = 0, dim = of->dim, heads = of->heads, out = of->common->out;
    (void)thread;
    Pieces begin = pieces(&phase, 1);
    while (some(&begin)) {
        F sum = f_splat(0);
        for (int i = 0; i < dim; i += LANES) sum = f_fma(f_load(g->word + i), f_load(g->word + i), sum);
        F by = f_splat(1 / sqrtf(f_sum(sum) / (float)dim + 1e-6f));
        for (int i = 0; i < dim; i += LANES) f_store(g->word + i, f_mul(f_load(g->word + i), by));
        round_row(g->state, dim, &g->one, 0);
        round_row(g->word, dim, g->each, 0); /* the first head's place, which is its own only later */
    }
    finish(&begin);
    products(&phase, of->first, 1, &g->one, 1, g->bent, (long long)heads * dim, 0);
    if (of->read) products(&phase, of->read, 1, g->each, 1, g->bent, (long long)heads * dim, 1);
    for (int block = 0; block <= of->blocks; block++) {
        Pieces p = pieces(&phase, heads);
        while (some(&p))
            for (int h = p.from; h < p.to; h++) {
                float *x = g->x + (long long)h * dim;
                if (!block) memcpy(x, g->state, sizeof(float) * (size_t)dim);
                bend_into(x, g->bent + (long long)h * dim, dim);
                if (block < of->blocks) round_row(x, dim, g->each + h, 0);
                else round_row(x, dim, &g->all, h);
            }
        finish(&p);
        for (int h = 0; h < heads && block < of->blocks; h++)
            products(&phase, of->rest + h * of->blocks + block, 1, g->each + h, 1, g->bent + (long long)h * dim, dim, 0);
    }
    products(&phase, of->common, 1, &g->all, heads, g->logits, out, 0);
    Pieces told = pieces(&phase, heads);
    while (some(&told))
        for (int h = told.from; h < told.to; h++) {
            const float *row = g->logits + (long long)h * out;
            best(row, 1, out, g->k, g->values + h * g->k, g->tokens + h * g->k);
            sums(row, 1, out, g->values + h * g->k, g->totals + h);
        }
    finish(&told);
}

/* The k best tokens of every head with their logits, and Σ exp(logit − best): 0 if there was no memory for it, −1 if the
 * token is none of the table. */
int guess(const Heads *of, const Table *table, const float *state, int token, int k, float *values, int32_t *tokens, double *totals,
          int threads) {
    if (token < 0 || token >= table->size) return -1;
    size_t dim = (size_t)of->dim, heads = (size_t)of->heads;
    Guess g = {.of = of, .state = state, .values = values, .tokens = tokens, .totals = totals, .k = k};
    float *room = malloc(sizeof(float) * (dim + 2 * heads * dim + heads * (size_t)of->common->out));
    g.each = calloc(heads, sizeof(Rounded));
    int fits = room && g.each && rounded_alloc(&g.one, 1, of->dim) && rounded_alloc(&g.all, of->heads, of->dim);
    for (int h = 0; fits && h < of->heads; h++) fits = rounded_alloc(g.each + h, 1, of->dim);
    if (fits) {
        g.word = room, g.x = room + dim, g.bent = g.x + heads * dim, g.logits = g.bent + heads * dim;
        decode(table->kind, table->rows + token * table->bytes, of->dim, g.word);
        together(all_heads, &g, threads, 5 + (of->blocks + 1) * (1 + of->heads));
    }
    for (int h = 0; g.each && h < of->heads; h++) rounded_free(g.each + h);
    rounded_free(&g.one), rounded_free(&g.all);
    free(g.each), free(room);
    return fits;
}
