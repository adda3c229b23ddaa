/* A forward of the Llama family over packed weights, all of it: norms, products, rotary turns, attention, perceptron.
 *
 * The same steps as runtime/network/llama.py, which defines them. Every token is computed by itself, in one order, from
 * its own numbers and the keys that it sees, so that its bits depend on its text alone.
 */
#define PER_LAYER 15 /* phases at most */

typedef struct {
    const float *before_attention, *qk_norm, *after_attention, *before_mlp, *after_mlp; /* NULL where there is none */
    const Matrix *qkv, *out, *gate_up, *down; /* qkv may be three matrices, gate_up two */
    const float *cosine, *sine;               /* [places, rotary / 2] */
    float *keys, *values;                     /* [kv_heads, room, head_dim] */
    int qkv_count, gate_up_count, plan;
} Layer;

typedef struct {
    const Layer *layer;
    const float *norm;
    const Matrix *head;
    int layers, dim, heads, kv_heads, head_dim, hidden, rotary, gelu;
    long long room;
    float eps, scale;
} Network;

typedef struct {
    const Network *net;
    float *x; /* embedded [tokens, dim], with room for [reads, dim]; changed */
    const int32_t *places, *into, *read;
    const Plan *plans;
    float *logits;  /* [reads, vocab] */
    float **hidden; /* by layer, and behind them what leaves the last norm: [reads, dim] each, or NULL */
    float *told;    /* [reads, 2k], as `tell` tells of each row of logits, or NULL */
    float *qkv, *seen, *both, *added, *scores;
    Rounded rounded;
    int tokens, reads, longest, k;
} Forward;

/* The norm of numbers from…until of a row, into the same places. */
INLINE void norm_part(const float *x, const float *weight, int size, float eps, float *to, int from, int until) {
    F sum = f_splat(0);
    for (int i = 0; i < size; i += LANES) sum = f_fma(f_load(x + i), f_load(x + i), sum);
    F by = f_splat(1 / sqrtf(f_sum(sum) / (float)size + eps));
    for (int i = from; i < until; i += LANES) f_store(to + i, f_mul(f_mul(f_load(x + i), by), f_load(weight + i)));
}

INLINE void norm_row(const float *x, const float *weight, int size, float eps, float *to) {
    norm_part(x, weight, size, eps, to, 0, size);
}

/* Turn the queries and keys of a token to its place, and store its keys and values. */
static void turn_row(const Network *net, const Layer *layer, float *qkv, int place, int slot) {
    int size = net->head_dim, half = net->rotary / 2;
    const float *c = layer->cosine + (long long)place * half, *s = layer->sine + (long long)place * half;
    for (int h = 0; h < net->heads + net->kv_heads; h++) {
        float *head = qkv + h * size;
        if (layer->qk_norm) norm_row(head, layer->qk_norm + h * size, size, net->eps, head);
        int i = 0;
        for (; i + LANES <= half; i += LANES) {
            F a = f_load(head + i), b = f_load(head + i + half), cos = f_load(c + i), sin = f_load(s + i);
            f_store(head + i, f_add(f_mul(a, cos), f_mul(f_mul(b, sin), f_splat(-1)))); /* a difference, to the bit */
            f_store(head + i + half, f_add(f_mul(b, cos), f_mul(a, sin)));
        }
        for (; i < half; i++) {
            float a = head[i], b = head[i + half];
            head[i] = a * c[i] - b * s[i];
            head[i + half] = b * c[i] + a * s[i];
        }
    }
    for (int h = 0; h < net->kv_heads; h++) {
        long long at = (h * net->room + slot) * size;
        memcpy(layer->keys + at, qkv + (net->heads + h) * size, sizeof(float) * (size_t)size);
        memcpy(layer->values + at, qkv + (net->heads + net->kv_heads + h) * size, sizeof(float) * (size_t)size);
    }
}

/* bend(gate)·up, in place of the gate: silu, or gelu by its tanh, both as x·sigmoid. */
static void bend_row(float *gate, const float *up, int size, int gelu) {
    for (int i = 0; i < size; i += LANES) {
        F x = f_load(gate + i), u = x;
        if (gelu) u = f_mul(f_mul(x, f_splat(1.5957691216f)), f_fma(f_mul(x, x), f_splat(0.044715f), f_splat(1)));
        F e = f_exp(f_mul(u, f_splat(-1)));
        f_store(gate + i, f_mul(f_div(x, f_add(e, f_splat(1))), f_load(up + i)));
    }
}

static Rounded rounded_for(const Forward *f, int in, int rows) {
    Rounded x = f->rounded;
    x.in = in, x.rows = rows;
    return x;
}

/* Behind a product whose outcome has a norm of its own: add the norm of `added` to x. Else it was added already. */
static void add_normed(int *phase, Forward *f, const float *norm, int rows) {
    int dim = f->net->dim;
    Pieces p = pieces(phase, rows);
    while (some(&p))
        for (int r = p.from; r < p.to; r++) {
            float *added = f->added + (long long)r * dim;
            float *x = f->x + (long long)r * dim;
            norm_row(added, norm, dim, f->net->eps, added);
            for (int i = 0; i < dim; i += LANES) f_store(x + i, f_add(f_load(x + i), f_load(added + i)));
        }
    finish(&p);
}

static void norm_and_round(int *phase, Forward *f, const float *norm, int rows) { /* leaves norms in `added` */
    int dim = f->net->dim;
    Rounded x = rounded_for(f, dim, rows);
    Pieces p = pieces(phase, parts_of(rows));
    while (some(&p))
        for (int unit = p.from; unit < p.to; unit++) {
            Part part = part_of(unit, rows, dim);
            for (int r = part.row; r < part.end; r++) {
                float *to = f->added + (long long)r * dim;
                norm_part(f->x + (long long)r * dim, norm, dim, f->net->eps, to, part.from * BLOCK, part.until * BLOCK);
                round_blocks(to, dim, &x, r, part.from, part.until);
            }
        }
    finish(&p);
}

static void one_layer(int *phase, Forward *f, int index, int thread) {
    const Network *net = f->net;
    const Layer *layer = net->layer + index;
    const Plan *plan = f->plans + layer->plan;
    int size = net->head_dim, wide = (net->heads + 2 * net->kv_heads) * size, gathered = net->heads * size;
    int n = f->tokens, last = index == net->layers - 1;
    int on = last ? f->reads : n; /* tokens that go on: behind the last attention nothing is asked of those nobody reads */
    Rounded x = rounded_for(f, net->dim, n), seen = rounded_for(f, gathered, on), inner = rounded_for(f, net->hidden, on);
    norm_and_round(phase, f, layer->before_attention, n);
    products(phase, layer->qkv, layer->qkv_count, &x, n, f->qkv, wide, 0);
    Pieces turns = pieces(phase, n);
    while (some(&turns))
        for (int r = turns.from; r < turns.to; r++) turn_row(net, layer, f->qkv + (long long)r * wide, f->places[r], f->into[r]);
    finish(&turns);
    float *scores = f->scores + (long long)thread * f->longest * ROWS_AT_ONCE;
    Pieces heads = pieces(phase, (n + ROWS_AT_ONCE - 1) / ROWS_AT_ONCE * net->heads);
    while (some(&heads))
        for (int unit = heads.from; unit < heads.to; unit++) {
            int r = unit / net->heads * ROWS_AT_ONCE, h = unit % net->heads;
            long long at = h / (net->heads / net->kv_heads) * net->room * size;
            Head head = {layer->keys + at, layer->values + at, size, net->scale};
            attend_rows(&head, plan, r, n - r < ROWS_AT_ONCE ? n - r : ROWS_AT_ONCE, f->qkv + (long long)r * wide + h * size, wide,
                        scores, f->longest, f->seen + (long long)r * gathered + h * size, gathered);
        }
    finish(&heads);
    Pieces rows = pieces(phase, parts_of(on));
    while (some(&rows))
        for (int unit = rows.from; unit < rows.to; unit++) {
            Part part = part_of(unit, on, gathered);
            for (int r = part.row; r < part.end; r++)
                round_blocks(f->seen + (long long)(last ? f->read[r] : r) * gathered, gathered, &seen, r, part.from, part.until);
        }
    finish(&rows);
    if (last) {
        Pieces kept = pieces(phase, on);
        while (some(&kept))
            for (int r = kept.from; r < kept.to; r++)
                memcpy(f->qkv + (long long)r * net->dim, f->x + (long long)f->read[r] * net->dim, sizeof(float) * (size_t)net->dim);
        finish(&kept);
        Pieces one = pieces(phase, 1);
        while (some(&one)) memcpy(f->x, f->qkv, sizeof(float) * (size_t)net->dim * (size_t)f->reads);
        finish(&one);
        n = x.rows = on;
    }
    int adds = !layer->after_attention;
    products(phase, layer->out, 1, &seen, n, adds ? f->x : f->added, net->dim, adds);
    if (!adds) add_normed(phase, f, layer->after_attention, n);
    norm_and_round(phase, f, layer->before_mlp, n);
    products(phase, layer->gate_up, layer->gate_up_count, &x, n, f->both, 2 * net->hidden, 0);
    Pieces bent = pieces(phase, parts_of(n));
    while (some(&bent))
        for (int unit = bent.from; unit < bent.to; unit++) {
            Part part = part_of(unit, n, net->hidden);
            for (int r = part.row; r < part.end; r++) {
                float *gate = f->both + 2ll * r * net->hidden, *some = gate + part.from * BLOCK;
                bend_row(some, some + net->hidden, (part.until - part.from) * BLOCK, net->gelu);
                round_blocks(gate, net->hidden, &inner, r, part.from, part.until);
            }
        }
    finish(&bent);
    adds = !layer->after_mlp;
    products(phase, layer->down, 1, &inner, n, adds ? f->x : f->added, net->dim, adds);
    if (!adds) add_normed(phase, f, layer->after_mlp, n);
}

/* Keep what the read tokens are now, rows of x, if somebody wants it. */
static void keep_hidden(int *phase, Forward *f, int index, const float *x, const int32_t *read) {
    if (!f->hidden[index]) return;
    Pieces p = pieces(phase, f->reads);
    size_t dim = (size_t)f->net->dim;
    while (some(&p))
        for (int r = p.from; r < p.to; r++)
            memcpy(f->hidden[index] + (size_t)r * dim, x + (size_t)(read ? read[r] : r) * dim, sizeof(float) * dim);
    finish(&p);
}

static void all_layers(void *arg, int thread) {
    Forward *f = arg;
    const Network *net = f->net;
    int phase = 0;
    for (int index = 0; index < net->layers; index++) {
        keep_hidden(&phase, f, index, f->x, f->read);
        one_layer(&phase, f, index, thread);
    }
    Rounded x = rounded_for(f, net->dim, f->reads);
    norm_and_round(&phase, f, net->norm, f->reads);
    keep_hidden(&phase, f, net->layers, f->added, 0);
    products(&phase, net->head, 1, &x, f->reads, f->logits, net->head->out, 0);
    if (!f->told) return;
    Pieces rows = pieces(&phase, f->reads);
    while (some(&rows))
        for (int r = rows.from; r < rows.to; r++)
            tell(f->logits + (long long)r * net->head->out, net->head->out, f->k, f->told + 2ll * r * f->k);
    finish(&rows);
}

/* Run a batch; 0 if there was no memory for it. */
int forward(const Network *net, int tokens, float *x, const int32_t *places, const int32_t *into, const Plan *plans, int longest,
            int reads, const int32_t *read, float *logits, float **hidden, int k, float *told, int threads) {
    int gathered = net->heads * net->head_dim, wide = gathered + 2 * net->kv_heads * net->head_dim;
    int most = net->dim > gathered ? net->dim : gathered;
    size_t n = (size_t)(tokens > reads ? tokens : reads);
    if (threads > MOST_THREADS) threads = MOST_THREADS;
    longest = (longest + LANES - 1) / LANES * LANES;
    Forward f = {.net = net, .x = x, .places = places, .into = into, .read = read, .plans = plans, .logits = logits,
                 .hidden = hidden, .told = told, .tokens = tokens, .reads = reads, .longest = longest, .k = k};
    f.qkv = malloc(sizeof(float) * n * (size_t)(wide > net->dim ? wide : net->dim));
    f.seen = malloc(sizeof(float) * n * (size_t)gathered);
    f.both = malloc(sizeof(float) * n * 2 * (size_t)net->hidden);
    f.added = malloc(sizeof(float) * n * (size_t)net->dim);
    f.scores = malloc(sizeof(float) * (size_t)longest * ROWS_AT_ONCE * (size_t)threads);
    int fits = rounded_alloc(&f.rounded, (int)n, most > net->hidden ? most : net->hidden);
    fits = fits && f.qkv && f.seen && f.both && f.added && f.scores && PER_LAYER * net->layers + PER_LAYER <= PHASES;
    if (fits) together(all_layers, &f, threads, PER_LAYER * net->layers + PER_LAYER);
    rounded_free(&f.rounded);
    free(f.qkv), free(f.seen), free(f.both), free(f.added), free(f.scores);
    return fits;
}
