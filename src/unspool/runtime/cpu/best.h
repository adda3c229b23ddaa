/* The largest numbers of rows of logits, in one pass over each. */

/* Put a number among the k largest so far, behind those that are as large: of equals the first comes first. */
static void place(float x, int token, int k, float *values, int32_t *tokens) {
    int at = k - 1;
    for (; at > 0 && values[at - 1] < x; at--) values[at] = values[at - 1], tokens[at] = tokens[at - 1];
    values[at] = x, tokens[at] = token;
}

/* values, tokens [rows, k]: the k largest of each row of x [rows, size] and where they stand, from the largest on. The
 * tokens of a row that holds something else than finite numbers are -1. 1 ≤ k ≤ size. */
void best(const float *x, int rows, int size, int k, float *values, int32_t *tokens) {
    for (int r = 0; r < rows; r++, x += size, values += k, tokens += k) {
        F odd = f_splat(0); /* or NaN, if a number is not finite */
        float rest = 0;
        int i = 0;
        for (int j = 0; j < k; j++) values[j] = -INFINITY, tokens[j] = -1;
        for (; i + LANES <= size; i += LANES) {
            F some = f_load(x + i);
            odd = f_fma(some, f_splat(0), odd);
            for (int above = f_above(some, f_splat(values[k - 1])); above; above &= above - 1) {
                int at = i + __builtin_ctz((unsigned)above);
                if (x[at] > values[k - 1]) place(x[at], at, k, values, tokens);
            }
        }
        for (; i < size; i++) {
            rest += x[i] * 0;
            if (x[i] > values[k - 1]) place(x[i], i, k, values, tokens);
        }
        if (f_sum(odd) + rest != 0)
            for (int j = 0; j < k; j++) tokens[j] = -1;
    }
}

/* to [2k]: the weights of the k largest numbers of a row among each other, then where they stand; −1 where best says so. */
static void tell(const float *x, int size, int k, float *to) {
    float values[k];
    int32_t tokens[k];
    double weights[k], total = 0;
    best(x, 1, size, k, values, tokens);
    for (int j = 0; j < k; j++) total += weights[j] = tokens[j] < 0 ? 1 : exp((double)values[j] - (double)values[0]);
    for (int j = 0; j < k; j++) to[j] = (float)(weights[j] / total), to[k + j] = (float)tokens[j];
}

/* to[r] = Σ exp(x − most[r]) over each row of x [rows, size], whose largest number is most[r]. */
void sums(const float *x, int rows, int size, const float *most, double *to) {
    for (int r = 0; r < rows; r++, x += size) {
        F top = f_splat(-most[r]), sum = f_splat(0);
        int i = 0;
        for (; i + LANES <= size; i += LANES) sum = f_add(sum, f_exp(f_add(f_load(x + i), top)));
        to[r] = f_sum(sum);
        for (; i < size; i++) to[r] += expf(x[i] - most[r]);
    }
}
