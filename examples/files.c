/* Writes a dataset of images and labels from C99, and reads some of its samples in any order. */
#include <stdio.h>
#include <tuckfold/c.h>

enum { kSamples = 100, kSide = 32 };

static int failed(void) {
  fprintf(stderr, "files: %s\n", tuckfold_last_error());
  return tuckfold_last_status();
}

static int write_file(const char* path) {
  static float image[kSamples][kSide][kSide];
  static int64_t label[kSamples];
  for (int i = 0; i < kSamples; ++i) {
    label[i] = i % 10;
    for (int y = 0; y < kSide; ++y) {
      for (int x = 0; x < kSide; ++x) image[i][y][x] = (float)(x + y + i) / 256;
    }
  }
  const int64_t sample[] = {kSide, kSide}, images[] = {kSamples, kSide, kSide};
  const int64_t labels[] = {kSamples};
  const tuckfold_array arrays[] = {{.name = "image",
                                    .codec = "dct_quant(rate=4)",
                                    .dtype = TUCKFOLD_F32,
                                    .rank = 2,
                                    .shape = sample},
                                   {.name = "label", .dtype = TUCKFOLD_I64}};
  const tuckfold_tensor batch[] = {
      {.data = image, .dtype = TUCKFOLD_F32, .rank = 3, .shape = images},
      {.data = label, .dtype = TUCKFOLD_I64, .rank = 1, .shape = labels}};
  const tuckfold_write_options options = {.struct_bytes = sizeof options, .force = 1};
  tuckfold_writer* writer;
  if (tuckfold_writer_open(path, arrays, 2, &options, &writer) != TUCKFOLD_OK) return failed();
  int status = 0;
  if (tuckfold_writer_write(writer, batch, 2) != TUCKFOLD_OK || /* as many batches as there are */
      tuckfold_writer_finish(writer) != TUCKFOLD_OK) {
    status = failed();
  }
  tuckfold_writer_close(writer, 0);
  return status;
}

static int read_file(const char* path) {
  static float image[3][kSide][kSide];
  const int64_t wanted[] = {42, 7, 99}, shape[] = {3, kSide, kSide};
  const tuckfold_tensor out = {.data = image, .dtype = TUCKFOLD_F32, .rank = 3, .shape = shape};
  tuckfold_reader* reader;
  if (tuckfold_reader_open(path, 0, &reader) != TUCKFOLD_OK) return failed();
  int status = 0;
  if (tuckfold_reader_gather(reader, 0, wanted, 3, &out, 0) != TUCKFOLD_OK) status = failed();
  const double error = image[0][5][6] - (5 + 6 + 42) / 256.0;
  printf("sample 42 is off by %.4f\n", error);
  tuckfold_reader_close(reader);
  return status != 0 ? status : error < -0.01 || error > 0.01;
}

int main(int count, char** arguments) {
  const char* const path = count > 1 ? arguments[1] : "example.tuck";
  const int status = write_file(path);
  return status != 0 ? status : read_file(path);
}
