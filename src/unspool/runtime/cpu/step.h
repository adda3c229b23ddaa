/* A forward that goes on with one text: what each token sees is worked out here, so that the caller only names it. */

/* A table of rows in blocks, as the file has them. */
typedef struct {
    const uint8_t *rows;
    long long bytes; /* of a row */
    int kind, size;  /* of its blocks; how many rows there are */
} Table;

/* Compute `owed` tokens behind the `known` ones of a text and `added` drafted ones below them.
 *
 * slots [known + owed + added] are those of the whole text, then of the new tokens; parents [added] are numbers of other
 * drafted tokens, or −1 for the end of the text. What comes out is of the last owed token, if there is one, and of all
 * drafted ones: in `told` their k best tokens (see `tell`), and at `made`, in memory that is given back by `give`, all
 * logits and, where states are wanted, behind them what leaves the last norm. 0 if there was no memory for it, −1 if a
 * token is none of the table.
 */
int step(const Network *net, const Table *table, const int32_t *slots, int known, int owed, int added, const int32_t *tokens,
         const int32_t *parents, int states, int k, float *told, float **made, int threads) {
    int n = owed + added, reads = added + (owed > 0), chain = 1, end = known + owed, done = 0;
    size_t lines = (size_t)added * (size_t)(added + 1) / 2, all = (size_t)(known + n), vocab = (size_t)net->head->out;
    size_t numbers_out = (size_t)reads * (vocab + (states ? (size_t)net->dim : 0));
    for (int i = 0; i < n; i++)
        if (tokens[i] < 0 || tokens[i] >= table->size) return -1;
    for (int i = 0; i < added; i++) chain = chain && parents[i] == i - 1;
    int32_t *numbers = malloc(sizeof(int32_t) * (all + lines + 5 * (size_t)n + (size_t)reads));
    float *x = malloc(sizeof(float) * (size_t)(n > reads ? n : reads) * (size_t)net->dim);
    float **hidden = calloc((size_t)net->layers + 1, sizeof(float *));
    float *out = aligned_alloc(64, (sizeof(float) * numbers_out + 63) / 64 * 64);
    if (!numbers || !x || !hidden || !out) goto end;
    if (states) hidden[net->layers] = out + (size_t)reads * vocab;
    int32_t *seen = numbers, *places = seen + all + lines, *start = places + n, *near = start + n, *first = near + n;
    int32_t *own = first + n, *read = own + n, filled = (int32_t)all;
    memcpy(seen, slots, sizeof(int32_t) * all);
    for (int i = 0; i < n; i++) {
        int drafted = i - owed, above = drafted < 0 ? -1 : parents[drafted];
        places[i] = drafted < 0 ? known + i : above < 0 ? end : places[owed + above] + 1;
        start[i] = 0, near[i] = drafted < 0 || chain ? known + i + 1 : end, first[i] = filled, own[i] = 0;
        if (drafted >= 0 && !chain) { /* the drafted tokens above it, from the first on, and itself */
            own[i] = places[i] - end + 1;
            for (int node = drafted, at = filled + own[i] - 1; node >= 0; node = parents[node]) seen[at--] = slots[end + node];
            filled += own[i];
        }
        decode(table->kind, table->rows + tokens[i] * table->bytes, net->dim, x + (long long)i * net->dim);
    }
    for (int i = 0; i < reads; i++) read[i] = n - reads + i;
    Plan plan = {seen, start, near, first, own};
    done = forward(net, n, x, places, slots + known, &plan, (int)all, reads, read, out, hidden, k, told, threads);
end:
    free(numbers), free(x), free(hidden);
    if (done) *made = out;
    else free(out);
    return done;
}

/* Take back what `step` has made. */
void give(void *made) { free(made); }
