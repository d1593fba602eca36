// Every operator is a few compute sets; its numbers are shared out over the tiles. A product is cut
// along samples, inputs and outputs so that a tile's slices are smallest; cut along inputs, it needs
// a sum of parts. What does not fit the share for temporaries is done in turns, each of which is a
// compute set with vertices of its own: so compute sets grow with the problem, and memory with them.
#include "planner/tiles.h"

#include <algorithm>
#include <cmath>

namespace tuckfold {
namespace {

using structured::ceil_div;
using structured::PlainStep;

constexpr std::int64_t kVector = 16;    // numbers that are not worth another vertex
constexpr std::int64_t kGroupIn = 8;    // a weight's piece that one pointer of a product names:
constexpr std::int64_t kGroupOut = 16;  // 8 inputs by 16 outputs

class Counter {
 public:
  Counter(const TileModel& model, std::int64_t tiles, double tile_bytes, double elem_bytes)
      : model_(model), tiles_(tiles), tile_bytes_(tile_bytes), elem_bytes_(elem_bytes) {}

  void map(std::int64_t elems, std::int64_t operands, std::int64_t times) {
    const auto most = static_cast<std::int64_t>(static_cast<double>(tiles_) * model_.workers);
    const std::int64_t vertices = std::min(most, ceil_div(elems, kVector));
    add(1, vertices, vertices * (operands + 1), 0, times);
    hold(ceil_div(elems, tiles_));
  }

  void move(std::int64_t elems, std::int64_t times) {
    const std::int64_t vertices = std::min(tiles_, ceil_div(elems, kVector));
    const std::int64_t each = ceil_div(elems, tiles_);
    add(1, vertices, 2 * vertices, ceil_div(each, kVector), times);
    hold(each);
  }

  // `groups` products of m x k by k x n.
  void product(std::int64_t groups, std::int64_t m, std::int64_t k, std::int64_t n) {
    const std::int64_t of_group = std::max<std::int64_t>(tiles_ / groups, 1);
    const std::int64_t in_turn = ceil_div(groups, tiles_);
    Slices best{m, k, n, 1, 1};
    for (std::int64_t p = 1; p <= std::min(of_group, m); p *= 2) {
      for (std::int64_t q = 1; p * q <= of_group && q <= n; q *= 2) {
        for (std::int64_t r = 1; p * q * r <= of_group && r <= k; r *= 2) {
          const Slices slices{ceil_div(m, p), ceil_div(k, r), ceil_div(n, q), r, p * q * r};
          if (slices.elems() < best.elems()) best = slices;
        }
      }
    }
    const std::int64_t used = std::min(tiles_, groups * best.tiles);
    const double temporary = static_cast<double>(in_turn * best.elems()) * elem_bytes_;
    const auto turns =
        static_cast<std::int64_t>(std::ceil(temporary / (model_.temporary_share * tile_bytes_)));
    const std::int64_t pieces_in = ceil_div(best.k, kGroupIn),
                       pieces_out = ceil_div(best.n, kGroupOut);
    const std::int64_t edges = in_turn * (pieces_in * pieces_out + pieces_in + pieces_out);
    add(1 + turns, used * turns, used * edges, in_turn * (best.m + best.k), 1);
    if (best.parts > 1) {
      const auto sums = static_cast<std::int64_t>(static_cast<double>(used) * model_.workers);
      add(1, sums, sums * (best.parts + 1), best.parts, 1);
    }
    hold(ceil_div(in_turn * best.elems(), turns));
  }

  TileCount count() const {
    TileCount count = count_;
    const auto tiles = static_cast<double>(tiles_);
    count.program_bytes =
        model_.code_bytes + static_cast<double>(count.compute_sets) * model_.compute_set_bytes +
        messages_ * model_.message_bytes +
        std::ceil(static_cast<double>(count.vertices) / tiles) * model_.vertex_bytes +
        std::ceil(static_cast<double>(count.edges) / tiles) * model_.edge_bytes;
    return count;
  }

 private:
  // What one tile has of a product's three matrices; a sum of parts is held twice.
  struct Slices {
    std::int64_t m, k, n, parts, tiles;
    std::int64_t elems() const { return m * k + k * n + m * n * (parts > 1 ? 2 : 1); }
  };

  void add(std::int64_t sets, std::int64_t vertices, std::int64_t edges, std::int64_t messages,
           std::int64_t times) {
    count_.compute_sets += times * sets;
    count_.vertices += times * vertices;
    count_.edges += times * edges;
    messages_ += static_cast<double>(times * messages);
  }
  void hold(std::int64_t elems) {
    count_.temporary_bytes =
        std::max(count_.temporary_bytes, static_cast<double>(elems) * elem_bytes_);
  }

  const TileModel& model_;
  std::int64_t tiles_;
  double tile_bytes_, elem_bytes_;
  TileCount count_;
  double messages_ = 0;  // that a tile receives
};

}  // namespace

TileCount count_tiles(const DeviceInfo& device, const structured::Declaration& layer,
                      const LayerQuestion& asked) {
  const auto tiles = static_cast<std::int64_t>(device.numbers.at("compute_units").value);
  const auto elem_bytes = static_cast<double>(size_bytes(asked.dtype));
  Counter counter(*device.tiles, tiles, device.numbers.at("on_chip_bytes_per_unit").value,
                  elem_bytes);
  const std::int64_t samples = asked.samples;
  std::int64_t saved = 0, weights = asked.out;
  for (const PlainStep& step : layer.plain) {
    const std::int64_t elems = step.n * (step.per_sample ? samples : 1);
    saved += step.times * step.saves * samples;
    switch (step.kind) {
      case PlainStep::Kind::Product:  // then the gradients of both operands
        counter.product(step.groups, samples, step.k, step.n);
        counter.product(step.groups, samples, step.n, step.k);
        counter.product(step.groups, step.n, samples, step.k);
        break;
      case PlainStep::Kind::Map: counter.map(elems, step.k, step.times * (1 + step.k)); break;
      case PlainStep::Kind::Move: counter.move(elems, 2 * step.times); break;
    }
  }
  counter.map(samples * asked.out, 2, 2);  // the bias, and the sum that is its gradient
  for (const WeightInfo& info : layer.weights) {
    if (info.trained) weights += info.shape.elems();
  }
  counter.map(weights, 2 + asked.states, 1);  // the optimizer
  TileCount count = counter.count();
  const std::int64_t live = weights * (2 + asked.states) + saved + samples * (asked.in + asked.out);
  count.data_bytes = static_cast<double>(ceil_div(live, tiles)) * elem_bytes;
  return count;
}

}  // namespace tuckfold
