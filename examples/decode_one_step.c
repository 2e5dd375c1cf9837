/* One decode step over an FP4 KV cache, in C99: make a cache, append a sequence's keys and values, plan once, run for the
 * newest token's query, and compare with the same attention written out in double precision.
 *
 *   cc -std=c99 decode_one_step.c $(pkg-config --cflags --libs fp4pa) -lm
 */
#include <fp4pa/fp4pa.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { Q_HEADS = 4, KV_HEADS = 2, HEAD_DIM = 64, PAGE_SIZE = 16, TOKENS = 75 };
enum { PAGES = (TOKENS + PAGE_SIZE - 1) / PAGE_SIZE, KV_VALUES = TOKENS * KV_HEADS * HEAD_DIM };

static void check(fp4pa_status status, const char* what) {
  if (status == FP4PA_OK) return;
  fprintf(stderr, "%s: %s: %s\n", what, fp4pa_status_name(status), fp4pa_last_error_detail());
  exit(1);
}

/* Memory at a 256-byte boundary, as a workspace needs it, released all at once at the end. */
static void* owned[8];
static int owned_count = 0;

static void* aligned(size_t bytes) {
  char* memory = (char*)malloc(bytes + 256);
  if (memory == NULL) {
    fprintf(stderr, "out of memory\n");
    exit(1);
  }
  owned[owned_count++] = memory;
  return memory + (256 - (uintptr_t)memory % 256);
}

static void release(void) {
  while (owned_count > 0) free(owned[--owned_count]);
}

/* Numbers between -1 and 1 from a linear congruential generator (Knuth's MMIX constants), the same on every machine. */
static float next_value(uint64_t* state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return (float)((double)(*state >> 40) / 8388608.0 - 1.0);
}

/* Attention of one query over keys and values [TOKENS, KV_HEADS, HEAD_DIM], in double precision. */
static void reference(const float* q, const float* k, const float* v, double* o) {
  for (int h = 0; h < Q_HEADS; ++h) {
    const int first = h / (Q_HEADS / KV_HEADS) * HEAD_DIM;
    double weight[TOKENS], largest = -HUGE_VAL, total = 0.0;
    for (int t = 0; t < TOKENS; ++t) {
      double score = 0.0;
      for (int d = 0; d < HEAD_DIM; ++d) score += (double)q[h * HEAD_DIM + d] * k[t * KV_HEADS * HEAD_DIM + first + d];
      weight[t] = score / sqrt((double)HEAD_DIM);
      if (weight[t] > largest) largest = weight[t];
    }
    for (int t = 0; t < TOKENS; ++t) total += weight[t] = exp(weight[t] - largest);
    for (int d = 0; d < HEAD_DIM; ++d) {
      double sum = 0.0;
      for (int t = 0; t < TOKENS; ++t) sum += weight[t] * v[t * KV_HEADS * HEAD_DIM + first + d];
      o[h * HEAD_DIM + d] = sum / total;
    }
  }
}

int main(void) {
  fp4pa_exec cpu;
  fp4pa_cache cache;
  fp4pa_kv_input k_in, v_in;
  fp4pa_kv_output k_out, v_out;
  fp4pa_attention_config config;
  fp4pa_attention_args args;
  fp4pa_plan* plan = NULL;
  int64_t page_bytes = 0;
  int32_t block_table[PAGES], slots[TOKENS], qo_indptr[2] = {0, 1}, seq_lens[1] = {TOKENS};
  static float k[KV_VALUES], v[KV_VALUES], k_held[KV_VALUES], v_held[KV_VALUES];
  static double expected[Q_HEADS * HEAD_DIM];
  float* q = (float*)aligned(sizeof(float) * Q_HEADS * HEAD_DIM);
  float* o = (float*)aligned(sizeof(float) * Q_HEADS * HEAD_DIM);
  uint64_t state = 42;
  double difference = 0.0, norm = 0.0;

  if (fp4pa_abi_version() != FP4PA_ABI_VERSION) {
    fprintf(stderr, "this program was compiled for ABI %d, the library has %d\n", FP4PA_ABI_VERSION,
            (int)fp4pa_abi_version());
    return 1;
  }

  /* All memory here is the host's, so the back end is named: with none named, a library with CUDA or HIP takes the GPU, which
   * needs device memory. */
  fp4pa_exec_init(&cpu);
  cpu.backend = "cpu";

  /* A pool of MXFP4 pages, K and V side by side in each page. */
  fp4pa_cache_init(&cache);
  cache.num_kv_heads = KV_HEADS;
  cache.head_dim = HEAD_DIM;
  cache.page_size = PAGE_SIZE;
  cache.num_pages = PAGES;
  cache.scale_mode = FP4PA_SCALE_EVEN;
  check(fp4pa_set_interleaved_pages(&cache, FP4PA_PAGE_NHD, NULL, &page_bytes), "page size");
  check(fp4pa_set_interleaved_pages(&cache, FP4PA_PAGE_NHD, aligned((size_t)page_bytes * PAGES), NULL), "pages");

  /* The sequence owns the pages in reverse order. */
  for (int p = 0; p < PAGES; ++p) block_table[p] = PAGES - 1 - p;
  for (int t = 0; t < TOKENS; ++t) slots[t] = block_table[t / PAGE_SIZE] * PAGE_SIZE + t % PAGE_SIZE;
  for (int i = 0; i < KV_VALUES; ++i) k[i] = next_value(&state);
  for (int i = 0; i < KV_VALUES; ++i) v[i] = next_value(&state);
  for (int i = 0; i < Q_HEADS * HEAD_DIM; ++i) q[i] = next_value(&state);
  fp4pa_kv_input_init(&k_in);
  k_in.data = k;
  k_in.dtype = FP4PA_F32;
  v_in = k_in;
  v_in.data = v;
  check(fp4pa_append(&cache, &k_in, &v_in, slots, FP4PA_INT32, TOKENS, &cpu), "append");

  /* Planned once for the largest call, then used for every step. */
  fp4pa_attention_config_init(&config);
  config.cache = &cache;
  config.num_q_heads = Q_HEADS;
  config.q_dtype = FP4PA_F32;
  config.o_dtype = FP4PA_F32;
  config.max_batch = 1;
  config.max_q_tokens = 1;
  config.max_q_len = 1;
  config.max_kv_len = TOKENS;
  config.backend = "cpu";
  check(fp4pa_plan_create(&config, &plan), "plan");

  fp4pa_attention_args_init(&args);
  args.q = q;
  args.o = o;
  args.batch = 1;
  args.qo_indptr = qo_indptr;
  args.seq_lens = seq_lens;
  args.block_table = block_table;
  args.table_stride = PAGES;
  args.workspace_bytes = fp4pa_plan_workspace_bytes(plan);
  args.workspace = aligned(args.workspace_bytes);
  check(fp4pa_run(plan, &args), "run");

  /* Against attention over what the cache holds: the kernel's own error, without that of 4 bits. */
  fp4pa_kv_output_init(&k_out);
  k_out.data = k_held;
  v_out = k_out;
  v_out.data = v_held;
  check(fp4pa_gather(&cache, slots, FP4PA_INT32, TOKENS, &k_out, &v_out, &cpu), "gather");
  reference(q, k_held, v_held, expected);
  for (int i = 0; i < Q_HEADS * HEAD_DIM; ++i) {
    difference += (o[i] - expected[i]) * (o[i] - expected[i]);
    norm += expected[i] * expected[i];
  }
  printf("fp4pa %s, back end %s\n", fp4pa_version_string(), fp4pa_plan_backend(plan));
  printf("%d tokens in mxfp4, %d pages of %lld bytes\n", (int)TOKENS, (int)PAGES, (long long)page_bytes);
  printf("relative error over the cache's contents %.1e\n", sqrt(difference / norm));
  fp4pa_plan_destroy(plan);
  release();
  return sqrt(difference / norm) < 2e-3 ? 0 : 1;
}
