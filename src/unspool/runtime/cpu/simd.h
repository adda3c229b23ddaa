/* Sixteen lanes at a time: AVX-512 with VNNI, AVX2 with or without it, or plain C, whichever this machine has.
 *
 * W holds 64 bytes, four unsigned weights for each of 16 lanes; I holds 16 whole numbers; F holds 16 floats. A sums the
 * products of W with four signed bytes, the same for all lanes.
 */
#include <math.h>
#include <stdint.h>
#include <string.h>

#define LANES 16
#define INLINE static inline __attribute__((always_inline))

INLINE int32_t four_of(const int8_t *x) {
    int32_t four;
    memcpy(&four, x, 4);
    return four;
}

INLINE float half(const uint8_t *p) { /* IEEE half precision, subnormal numbers too */
    uint16_t h;
    memcpy(&h, p, 2);
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, rest = (uint32_t)(h & 0x7fff) << 13, bits;
    float f;
    if ((h & 0x7c00) == 0x7c00) bits = rest | 0x70000000 | 0x7f800000;
    else bits = rest;
    memcpy(&f, &bits, 4);
    if ((h & 0x7c00) != 0x7c00) f *= 0x1p112f;
    memcpy(&bits, &f, 4);
    bits |= sign;
    memcpy(&f, &bits, 4);
    return f;
}

#if defined(__AVX2__)
#include <immintrin.h>
INLINE int32_t stored(__m128i q, int8_t *to) { /* sixteen numbers of −128…127; their sum */
    _mm_storeu_si128((__m128i *)to, q);
    __m128i sums = _mm_sad_epu8(_mm_xor_si128(q, _mm_set1_epi8(-128)), _mm_setzero_si128()); /* each is 128 more */
    return _mm_cvtsi128_si32(sums) + _mm_extract_epi16(sums, 4) - 16 * 128;
}
INLINE __m128 four_sums(__m256 a, __m256 b, __m256 c, __m256 d) { /* in the order of f_sum */
    __m256 x = _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
    __m256 y = _mm256_add_ps(_mm256_permute2f128_ps(c, d, 0x20), _mm256_permute2f128_ps(c, d, 0x31));
    x = _mm256_add_ps(_mm256_shuffle_ps(x, y, _MM_SHUFFLE(1, 0, 1, 0)), _mm256_shuffle_ps(x, y, _MM_SHUFFLE(3, 2, 3, 2)));
    x = _mm256_add_ps(x, _mm256_movehdup_ps(x));
    return _mm_blend_ps(_mm256_castps256_ps128(x), _mm_moveldup_ps(_mm256_extractf128_ps(x, 1)), 10);
}
#endif

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VNNI__)
#define LEVEL "avx512"
#define AT_ONCE 8 /* rows of inputs that share the unpacking of a block */
typedef __m512i W;
typedef __m512i I;
typedef __m512 F;
INLINE W w_load(const uint8_t *p) { return _mm512_loadu_si512(p); }
INLINE W w_low(W c) { return _mm512_and_si512(c, _mm512_set1_epi8(15)); }
INLINE W w_high(W c) { return _mm512_and_si512(_mm512_srli_epi16(c, 4), _mm512_set1_epi8(15)); }
INLINE W w_pair(W low, W bits, int shift) { /* low | ((bits >> shift) & 3) << 4 */
    return _mm512_or_si512(low, _mm512_slli_epi16(_mm512_and_si512(_mm512_srli_epi16(bits, shift), _mm512_set1_epi8(3)), 4));
}
INLINE I i_splat(int32_t x) { return _mm512_set1_epi32(x); }
typedef I A;
#define SIGNED_BYTES 0
INLINE A a_begin(I sum) { return sum; }
INLINE A a_dot(A a, W w, const int8_t *x) { /* as the compiler would not write it: in place, by a number in memory */
    __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(a) : "v"(w), "m"(*(const int8_t(*)[4])x));
    return a;
}
INLINE I a_end(I sum, A a) { (void)sum; return a; }
INLINE I i_dot_wide(I sum, W w, const int8_t *x) { return a_dot(sum, w, x); }
INLINE F f_of(I a) { return _mm512_cvtepi32_ps(a); }
INLINE F f_splat(float x) { return _mm512_set1_ps(x); }
INLINE F f_load(const float *p) { return _mm512_loadu_ps(p); }
INLINE void f_store(float *p, F x) { _mm512_storeu_ps(p, x); }
INLINE F f_add(F a, F b) { return _mm512_add_ps(a, b); }
INLINE F f_mul(F a, F b) { return _mm512_mul_ps(a, b); }
INLINE F f_max(F a, F b) { return _mm512_max_ps(a, b); }
INLINE F f_min(F a, F b) { return _mm512_min_ps(a, b); }
INLINE F f_div(F a, F b) { return _mm512_div_ps(a, b); }
INLINE F f_abs(F a) { return _mm512_abs_ps(a); }
INLINE F f_fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
INLINE float f_sum(F a) { return _mm512_reduce_add_ps(a); }
#define SUMMED 16 /* at once */
INLINE F f_halved(F a, F b) { /* halves of a added to each other, then those of b */
    return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
}
INLINE F f_quartered(F a, F b) { /* the same within each half */
    return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
}
INLINE void f_sums(const F *x, float *to) { /* of sixteen, each in the order of f_sum */
    F a[4];
    _Pragma("GCC unroll 4")
    for (int i = 0; i < 4; i++) /* four numbers of each of four */
        a[i] = f_quartered(f_halved(x[4 * i], x[4 * i + 1]), f_halved(x[4 * i + 2], x[4 * i + 3]));
    _Pragma("GCC unroll 2")
    for (int i = 0; i < 4; i += 2)
        a[i / 2] = _mm512_add_ps(_mm512_shuffle_ps(a[i], a[i + 1], 0x44), _mm512_shuffle_ps(a[i], a[i + 1], 0xee));
    F sums = _mm512_add_ps(_mm512_shuffle_ps(a[0], a[1], 0x88), _mm512_shuffle_ps(a[0], a[1], 0xdd));
    __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    f_store(to, _mm512_permutexvar_ps(order, sums));
}
INLINE float f_most(F a) { return _mm512_reduce_max_ps(a); }
INLINE F f_halves(const uint8_t *p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p)); }
INLINE F f_bytes(const uint8_t *p) { return f_of(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p))); }
INLINE F f_signed(const uint8_t *p) { return f_of(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p))); }
INLINE int32_t f_round(F x, int8_t *to) { /* to int8, ties to even; their sum */
    return stored(_mm512_cvtepi32_epi8(_mm512_cvtps_epi32(x)), to);
}
INLINE int f_above(F x, F bar) { return (int)_mm512_cmp_ps_mask(x, bar, _CMP_GT_OQ); } /* a bit for each lane */
INLINE F f_floor(F x) { return _mm512_roundscale_ps(x, 1); }
INLINE F f_scaled(F x, F n) { return _mm512_scalef_ps(x, n); }

#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#define AT_ONCE 4
typedef struct { __m256i a, b; } W;
typedef W I;
typedef struct { __m256 a, b; } F;
INLINE W w_load(const uint8_t *p) {
    return (W){_mm256_loadu_si256((const __m256i *)p), _mm256_loadu_si256((const __m256i *)(p + 32))};
}
INLINE W w_low(W c) {
    __m256i m = _mm256_set1_epi8(15);
    return (W){_mm256_and_si256(c.a, m), _mm256_and_si256(c.b, m)};
}
INLINE W w_high(W c) { return w_low((W){_mm256_srli_epi16(c.a, 4), _mm256_srli_epi16(c.b, 4)}); }
INLINE __m256i w_pair_half(__m256i low, __m256i bits, int shift) {
    __m256i two = _mm256_and_si256(_mm256_srli_epi16(bits, shift), _mm256_set1_epi8(3));
    return _mm256_or_si256(low, _mm256_slli_epi16(two, 4));
}
INLINE W w_pair(W low, W bits, int shift) {
    return (W){w_pair_half(low.a, bits.a, shift), w_pair_half(low.b, bits.b, shift)};
}
INLINE I i_splat(int32_t x) { return (I){_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
#ifdef __AVXVNNI__
#define LEVEL "avx2 vnni"
typedef I A;
#define SIGNED_BYTES 0
INLINE A a_begin(I sum) { return sum; }
INLINE A a_dot(A a, W w, const int8_t *x) {
    __m256i four = _mm256_set1_epi32(four_of(x));
    return (A){_mm256_dpbusd_avx_epi32(a.a, w.a, four), _mm256_dpbusd_avx_epi32(a.b, w.b, four)};
}
INLINE I a_end(I sum, A a) { (void)sum; return a; }
INLINE I i_dot_wide(I sum, W w, const int8_t *x) { return a_dot(sum, w, x); }
#else
#define LEVEL "avx2"
typedef W A; /* 32 sums of 16 bits: those of two products each, for as long as they fit */
#define SIGNED_BYTES 1
INLINE A a_begin(I sum) { (void)sum; return (A){_mm256_setzero_si256(), _mm256_setzero_si256()}; }
INLINE A a_dot(A a, W w, const int8_t *x) {
    __m256i four = _mm256_set1_epi32(four_of(x));
    return (A){_mm256_add_epi16(a.a, _mm256_maddubs_epi16(w.a, four)), _mm256_add_epi16(a.b, _mm256_maddubs_epi16(w.b, four))};
}
INLINE I a_end(I sum, A a) {
    __m256i one = _mm256_set1_epi16(1);
    return (I){_mm256_add_epi32(sum.a, _mm256_madd_epi16(a.a, one)), _mm256_add_epi32(sum.b, _mm256_madd_epi16(a.b, one))};
}
/* 8-bit weights stand for w − 128: sums of two products of unsigned ones would not fit 16 bits. */
INLINE __m256i i_dot_half(__m256i sum, __m256i w, __m256i x) {
    w = _mm256_xor_si256(w, _mm256_set1_epi8(-128));
    __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
    return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}
INLINE I i_dot_wide(I sum, W w, const int8_t *x) {
    __m256i four = _mm256_set1_epi32(four_of(x));
    return (I){i_dot_half(sum.a, w.a, four), i_dot_half(sum.b, w.b, four)};
}
#endif
INLINE F f_of(I a) { return (F){_mm256_cvtepi32_ps(a.a), _mm256_cvtepi32_ps(a.b)}; }
INLINE F f_splat(float x) { return (F){_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
INLINE F f_load(const float *p) { return (F){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
INLINE void f_store(float *p, F x) { _mm256_storeu_ps(p, x.a); _mm256_storeu_ps(p + 8, x.b); }
INLINE F f_add(F a, F b) { return (F){_mm256_add_ps(a.a, b.a), _mm256_add_ps(a.b, b.b)}; }
INLINE F f_mul(F a, F b) { return (F){_mm256_mul_ps(a.a, b.a), _mm256_mul_ps(a.b, b.b)}; }
INLINE F f_max(F a, F b) { return (F){_mm256_max_ps(a.a, b.a), _mm256_max_ps(a.b, b.b)}; }
INLINE F f_min(F a, F b) { return (F){_mm256_min_ps(a.a, b.a), _mm256_min_ps(a.b, b.b)}; }
INLINE F f_div(F a, F b) { return (F){_mm256_div_ps(a.a, b.a), _mm256_div_ps(a.b, b.b)}; }
INLINE F f_abs(F a) {
    __m256 s = _mm256_set1_ps(-0.0f);
    return (F){_mm256_andnot_ps(s, a.a), _mm256_andnot_ps(s, a.b)};
}
INLINE F f_fma(F a, F b, F c) { return (F){_mm256_fmadd_ps(a.a, b.a, c.a), _mm256_fmadd_ps(a.b, b.b, c.b)}; }
INLINE F f_halves(const uint8_t *p) {
    return (F){_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)), _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(p + 16)))};
}
INLINE F f_bytes(const uint8_t *p) {
    return f_of((I){_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p)), _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(p + 8)))});
}
INLINE F f_signed(const uint8_t *p) {
    return f_of((I){_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p)), _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(p + 8)))});
}
INLINE float f_sum(F a) { /* in the order in which AVX-512 adds */
    __m256 x = _mm256_add_ps(a.a, a.b);
    __m128 y = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    y = _mm_add_ps(y, _mm_movehl_ps(y, y));
    return _mm_cvtss_f32(_mm_add_ss(y, _mm_movehdup_ps(y)));
}
INLINE __m256 f_folded(F a) { return _mm256_add_ps(a.a, a.b); }
#define SUMMED 4
INLINE void f_sums(const F *x, float *to) {
    _mm_storeu_ps(to, four_sums(f_folded(x[0]), f_folded(x[1]), f_folded(x[2]), f_folded(x[3])));
}
INLINE float f_most(F a) {
    __m256 x = _mm256_max_ps(a.a, a.b);
    __m128 y = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    y = _mm_max_ps(y, _mm_movehl_ps(y, y));
    return _mm_cvtss_f32(_mm_max_ss(y, _mm_movehdup_ps(y)));
}
INLINE int32_t f_round(F x, int8_t *to) {
    __m256i q = _mm256_packs_epi32(_mm256_cvtps_epi32(x.a), _mm256_cvtps_epi32(x.b)); /* four of each by turns */
    q = _mm256_permute4x64_epi64(q, 0xd8);
    return stored(_mm_packs_epi16(_mm256_castsi256_si128(q), _mm256_extracti128_si256(q, 1)), to);
}
INLINE int f_above(F x, F bar) {
    int low = _mm256_movemask_ps(_mm256_cmp_ps(x.a, bar.a, _CMP_GT_OQ));
    return low | _mm256_movemask_ps(_mm256_cmp_ps(x.b, bar.b, _CMP_GT_OQ)) << 8;
}
INLINE F f_floor(F x) { return (F){_mm256_floor_ps(x.a), _mm256_floor_ps(x.b)}; }
INLINE __m256 f_scaled_half(__m256 x, __m256 n) { /* x·2ⁿ for n in −126…126 */
    return _mm256_mul_ps(x, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23)));
}
INLINE F f_scaled(F x, F n) { return (F){f_scaled_half(x.a, n.a), f_scaled_half(x.b, n.b)}; }

#else
#define LEVEL "portable"
#define AT_ONCE 4
typedef struct { uint8_t v[64]; } W;
typedef struct { int32_t v[16]; } I;
typedef struct { float v[16]; } F;
#define EACH for (int i = 0; i < 16; i++)
INLINE W w_load(const uint8_t *p) { W r; memcpy(r.v, p, 64); return r; }
INLINE W w_low(W c) { for (int i = 0; i < 64; i++) c.v[i] &= 15; return c; }
INLINE W w_high(W c) { for (int i = 0; i < 64; i++) c.v[i] >>= 4; return c; }
INLINE W w_pair(W low, W bits, int shift) {
    for (int i = 0; i < 64; i++) low.v[i] |= (uint8_t)(((bits.v[i] >> shift) & 3) << 4);
    return low;
}
INLINE I i_splat(int32_t x) { I r; EACH r.v[i] = x; return r; }
typedef I A;
#define SIGNED_BYTES 0
INLINE A a_begin(I sum) { return sum; }
INLINE A a_dot(A a, W w, const int8_t *x) {
    EACH a.v[i] += w.v[4 * i] * x[0] + w.v[4 * i + 1] * x[1] + w.v[4 * i + 2] * x[2] + w.v[4 * i + 3] * x[3];
    return a;
}
INLINE I a_end(I sum, A a) { (void)sum; return a; }
INLINE I i_dot_wide(I sum, W w, const int8_t *x) { return a_dot(sum, w, x); }
INLINE F f_of(I a) { F r; EACH r.v[i] = (float)a.v[i]; return r; }
INLINE F f_splat(float x) { F r; EACH r.v[i] = x; return r; }
INLINE F f_load(const float *p) { F r; memcpy(r.v, p, 64); return r; }
INLINE void f_store(float *p, F x) { memcpy(p, x.v, 64); }
INLINE F f_add(F a, F b) { EACH a.v[i] += b.v[i]; return a; }
INLINE F f_mul(F a, F b) { EACH a.v[i] *= b.v[i]; return a; }
INLINE F f_max(F a, F b) { EACH a.v[i] = a.v[i] > b.v[i] ? a.v[i] : b.v[i]; return a; }
INLINE F f_min(F a, F b) { EACH a.v[i] = a.v[i] < b.v[i] ? a.v[i] : b.v[i]; return a; }
INLINE F f_div(F a, F b) { EACH a.v[i] /= b.v[i]; return a; }
INLINE F f_abs(F a) { EACH a.v[i] = fabsf(a.v[i]); return a; }
INLINE F f_fma(F a, F b, F c) { EACH a.v[i] = a.v[i] * b.v[i] + c.v[i]; return a; }
INLINE float f_sum(F a) {
    for (int half = 8; half; half /= 2)
        for (int i = 0; i < half; i++) a.v[i] += a.v[i + half];
    return a.v[0];
}
#define SUMMED 4
INLINE void f_sums(const F *x, float *to) { for (int i = 0; i < 4; i++) to[i] = f_sum(x[i]); }
INLINE float f_most(F a) { float y = a.v[0]; EACH y = a.v[i] > y ? a.v[i] : y; return y; }
INLINE F f_halves(const uint8_t *p) { F r; EACH r.v[i] = half(p + 2 * i); return r; }
INLINE F f_bytes(const uint8_t *p) { F r; EACH r.v[i] = p[i]; return r; }
INLINE F f_signed(const uint8_t *p) { F r; EACH r.v[i] = (int8_t)p[i]; return r; }
INLINE int32_t f_round(F x, int8_t *to) {
    int32_t sum = 0;
    EACH { to[i] = (int8_t)lrintf(x.v[i]); sum += to[i]; }
    return sum;
}
INLINE int f_above(F x, F bar) { int found = 0; EACH found |= (x.v[i] > bar.v[i]) << i; return found; }
INLINE F f_floor(F x) { EACH x.v[i] = floorf(x.v[i]); return x; }
INLINE F f_scaled(F x, F n) { EACH x.v[i] = ldexpf(x.v[i], (int)n.v[i]); return x; }
#endif

/* eˣ to a rounding or two, for any x: outside of ±87 it is that of ±87. What is not a number stays so. */
INLINE F f_exp(F x) {
    F y = f_min(f_splat(87), f_max(f_splat(-87), x)); /* of a number and NaN both take the second */
    F n = f_floor(f_fma(y, f_splat(1.44269504f), f_splat(0.5f)));
    F r = f_fma(n, f_splat(2.12194440e-4f), f_fma(n, f_splat(-0.693359375f), y)), p = f_splat(1.9875691500e-4f);
    p = f_fma(p, r, f_splat(1.3981999507e-3f));
    p = f_fma(p, r, f_splat(8.3334519073e-3f));
    p = f_fma(p, r, f_splat(4.1665795894e-2f));
    p = f_fma(p, r, f_splat(1.6666665459e-1f));
    p = f_fma(p, r, f_splat(5.0000001201e-1f));
    return f_scaled(f_fma(f_mul(p, r), r, f_add(r, f_splat(1))), n);
}
