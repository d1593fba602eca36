/* Packs an image to a quarter of its values from C99, unpacks it, and says what that cost. */
#include <stdio.h>
#include <stdlib.h>
#include <tuckfold/c.h>

enum { kSide = 64 };

static int failed(void) {
  fprintf(stderr, "pack: %s\n", tuckfold_last_error());
  return tuckfold_last_status();
}

int main(void) {
  static float image[kSide][kSide], restored[kSide][kSide];
  const char* const spec = "dct_chop(keep=4)";
  const int64_t shape[] = {kSide, kSide};
  const tuckfold_tensor in = {.data = image, .dtype = TUCKFOLD_F32, .rank = 2, .shape = shape};
  const tuckfold_tensor out = {.data = restored, .dtype = TUCKFOLD_F32, .rank = 2, .shape = shape};
  const tuckfold_options options = {.struct_bytes = sizeof options, .threads = 1};
  tuckfold_plan* plan;
  size_t bytes = 0;
  double worst = 0;
  for (int y = 0; y < kSide; ++y) {
    for (int x = 0; x < kSide; ++x) image[y][x] = (float)(x * x + y) / (kSide * kSide);
  }

  if (tuckfold_plan_get(spec, in.dtype, in.rank, shape, &plan) != TUCKFOLD_OK) return failed();
  const size_t room = tuckfold_plan_layout(plan)->max_bytes;
  void* packed = malloc(room);
  if (packed == NULL) return TUCKFOLD_IO;
  if (tuckfold_pack(plan, &in, packed, room, &options, &bytes) != TUCKFOLD_OK ||
      tuckfold_unpack(plan, packed, bytes, &out, &options) != TUCKFOLD_OK) {
    return failed();
  }
  for (int y = 0; y < kSide; ++y) {
    for (int x = 0; x < kSide; ++x) {
      const double error = image[y][x] - restored[y][x];
      if (error > worst || -error > worst) worst = error < 0 ? -error : error;
    }
  }
  printf("%s: %zu -> %zu bytes, largest error %.4f\n", spec, sizeof image, bytes, worst);
  free(packed);
  tuckfold_plan_release(plan);
  return worst < 0.01 ? 0 : 1;
}
