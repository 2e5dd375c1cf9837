/* A C program that quantises a row, reads it back, and is told what is wrong with a bad one. */
#include <fp4pa/fp4pa.h>

#include <stdio.h>
#include <string.h>

int main(void) {
  float x[32], y[32];
  unsigned char codes[16], scales[1];
  fp4pa_quantize_config config;
  fp4pa_exec cpu;
  int i;

  if (fp4pa_abi_version() != FP4PA_ABI_VERSION) return 1;
  fp4pa_quantize_config_init(&config);
  /* The memory is the host's: with no back end named, a library with CUDA or HIP would take the GPU. */
  fp4pa_exec_init(&cpu);
  cpu.backend = "cpu";
  for (i = 0; i < 32; ++i) x[i] = (float)(i % 4); /* 0 to 3: exact in E2M1 */
  if (fp4pa_quantized_code_bytes(FP4PA_BLOCK_MXFP4, 1, 32) != sizeof codes) return 2;
  if (fp4pa_quantize(&config, x, FP4PA_F32, 1, 32, codes, scales, &cpu) != FP4PA_OK) {
    fprintf(stderr, "%s\n", fp4pa_last_error_detail());
    return 3;
  }
  if (fp4pa_dequantize(&config, codes, scales, 1, 32, y, FP4PA_F32, &cpu) != FP4PA_OK) return 4;
  if (memcmp(x, y, sizeof x) != 0) return 5;
  if (fp4pa_quantize(&config, x, FP4PA_F32, 1, 31, codes, scales, &cpu) != FP4PA_INVALID_SIZE) return 6;
  if (strstr(fp4pa_last_error_detail(), "cols is 31") == NULL) return 7;
  printf("C consumer: fp4pa %s\n", fp4pa_version_string());
  return 0;
}
