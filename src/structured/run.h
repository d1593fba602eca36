// Runs a kernel over a batch: conversion of dtypes, tiles, threads, sums of gradients.
#pragma once

#include "structured/layer.h"

namespace tuckfold::structured {

// Pointers have been checked: dtypes, shapes and devices agree, everything is row-major.
struct Job {
  const Layer* layer;
  DType dtype;
  std::int64_t samples;
  const void* x;
  const void* weights[kMaxWeights];
  const void* bias;  // may be null
  int threads;
};
struct ForwardJob : Job {
  void* y;
};
struct BackwardJob : Job {
  const void* grad_y;
  void* grad_x;  // these may be null
  void* grad_weights[kMaxWeights];
  void* grad_bias;
};

// What both passes take beside the tensors of their jobs.
std::int64_t workspace_bytes(const Layer& layer, DType dtype, std::int64_t samples, int threads);

void run_forward(const ForwardJob& job);
void run_backward(const BackwardJob& job);

}  // namespace tuckfold::structured
