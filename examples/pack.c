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
  const int64_t shape[] = {kSide, kSide};
  const tuckfold_tensor in = {.data = image, .dtype = TUCKFOLD_F32, .rank = 2, .shape = shape};
  const tuckfold_tensor out = {.data = restored, .dtype = TUCKFOLD_F32, .rank = 2, .shape = shape};
  const tuckfold_options options = {.struct_bytes = sizeof options, .threads = 1};
  tuckfold_spec* spec;
  tuckfold_layout fit;
  size_t bytes = 0;
  double worst = 0;
  for (int y = 0; y < kSide; ++y) {
    for (int x = 0; x < kSide; ++x) image[y][x] = (float)(x * x + y) / (kSide * kSide);
  }

  if (tuckfold_spec_parse("dct_chop(keep=4)", &spec) != TUCKFOLD_OK) return failed();
  if (tuckfold_layout_of(spec, in.dtype, in.rank, shape, &fit) != TUCKFOLD_OK) return failed();
  void* packed = malloc(fit.max_bytes);
  if (packed == NULL) return TUCKFOLD_IO;
  if (tuckfold_pack(spec, &in, packed, fit.max_bytes, &options, &bytes) != TUCKFOLD_OK ||
      tuckfold_unpack(spec, packed, bytes, &out, &options) != TUCKFOLD_OK) {
    return failed();
  }
  for (int y = 0; y < kSide; ++y) {
    for (int x = 0; x < kSide; ++x) {
      const double error = image[y][x] - restored[y][x];
      if (error > worst || -error > worst) worst = error < 0 ? -error : error;
    }
  }
  printf("%s: %zu -> %zu bytes, largest error %.4f\n", tuckfold_spec_text(spec), sizeof image,
         bytes, worst);
  free(packed);
  tuckfold_spec_free(spec);
  return worst < 0.01 ? 0 : 1;
}
