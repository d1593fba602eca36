// The table of nodes. A node that is not in it has its passes run by Python.
#include "torch/hooks/kinds.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/generated/Functions.h>

#include <typeindex>
#include <unordered_map>

namespace tuckfold::hooks {
namespace {

using namespace ::torch::autograd::generated;

constexpr double kNone = -1e300;  // as _record.py has it

template <class T>
void add(std::vector<double>& out, const T& value) {
  if constexpr (requires { value.guard_int(__FILE__, __LINE__); }) {  // a SymInt
    out.push_back(static_cast<double>(value.guard_int(__FILE__, __LINE__)));
  } else if constexpr (requires { value.toDouble(); }) {  // a Scalar
    out.push_back(value.isComplex() ? kNone : value.toDouble());
  } else if constexpr (std::is_same_v<T, std::string>) {
    out.push_back(value == "none" ? 0 : value == "tanh" ? 1 : -1);
  } else if constexpr (requires { value.has_value(); }) {
    out.push_back(value.has_value() ? static_cast<double>(*value) : kNone);
  } else if constexpr (requires { value.size(); }) {
    out.push_back(static_cast<double>(value.size()));
    for (const auto& each : value) add(out, each);
  } else {
    out.push_back(static_cast<double>(value));
  }
}

template <class N>
struct Entry {
  Kind kind;

  explicit Entry(const char* name) { kind.name = name, kind.type = &typeid(N); }

  Entry role(const char* name, SavedVariable N::*member) && {
    kind.roles.emplace_back(name,
                            [member](Node& node) { return &(static_cast<N&>(node).*member); });
    return std::move(*this);
  }
  // In the order in which _record.py lists the attributes.
  template <class... T>
  Entry constants(T N::*... member) && {
    kind.constants = [member...](Node& node, std::vector<double>& out) {
      (add(out, static_cast<N&>(node).*member), ...);
    };
    return std::move(*this);
  }
  Entry makes_new() && {
    kind.makes_new = true;
    return std::move(*this);
  }
};

template <class N>
Kind view(const char* name, bool is_reshape = false) {
  Entry<N> entry(name);
  entry.kind.is_view = true;
  entry.kind.is_reshape = is_reshape;
  return entry.kind;
}

template <class N>
Kind plain(const char* name) {
  return Entry<N>(name).kind;
}

template <class N>
Kind with_self(const char* name) {
  return Entry<N>(name).role("self", &N::self_).kind;
}

template <class N>
Kind with_result(const char* name) {
  return Entry<N>(name).role("result", &N::result_).kind;
}

template <class N>
Kind with_self_and_indices(const char* name) {
  return Entry<N>(name).role("self", &N::self_).role("result1", &N::result1_).kind;
}

// In the order of Attention::Role.
template <class N>
Kind attention(const char* name, Attention::Make make) {
  auto entry = Entry<N>(name)
                   .role("query", &N::query_)
                   .role("key", &N::key_)
                   .role("value", &N::value_)
                   .role("output", &N::output_)
                   .constants(&N::is_causal, &N::scale, &N::dropout_p);
  if constexpr (requires(N node) { node.log_sumexp_; }) {
    entry = std::move(entry).role("log_sumexp", &N::log_sumexp_);
  } else {
    entry = std::move(entry).role("logsumexp", &N::logsumexp_);
  }
  if constexpr (requires(N node) { node.attn_mask_; }) {
    entry = std::move(entry).role("attn_mask", &N::attn_mask_);
  } else if constexpr (requires(N node) { node.attn_bias_; }) {
    entry = std::move(entry).role("attn_bias", &N::attn_bias_);
  }
  entry.kind.attention = [make](const Node& node) {
    const auto& own = static_cast<const N&>(node);
    return Attention{
        .is_causal = own.is_causal, .scale = own.scale, .make = make, .drops = own.dropout_p != 0};
  };
  return entry.kind;
}

using Mask = std::optional<at::Tensor>;
using Values = std::vector<at::Tensor>;

Attention::Made first_two(const auto& results) {
  return {std::get<0>(results), std::get<1>(results)};
}

// Without dropout, on which sums do not depend.
Attention::Made on_cpu(const Attention& a, const Values& v, const Mask& mask) {
  return first_two(at::_scaled_dot_product_flash_attention_for_cpu(v[0], v[1], v[2], 0.0,
                                                                   a.is_causal, mask, a.scale));
}

Attention::Made by_flash(const Attention& a, const Values& v, const Mask&) {
  return first_two(at::_scaled_dot_product_flash_attention(v[0], v[1], v[2], 0.0, a.is_causal,
                                                           /*return_debug_mask=*/false, a.scale));
}

Attention::Made by_efficient(const Attention& a, const Values& v, const Mask& mask) {
  return first_two(at::_scaled_dot_product_efficient_attention(
      v[0], v[1], v[2], mask, /*compute_log_sumexp=*/true, 0.0, a.is_causal, a.scale));
}

Attention::Made by_cudnn(const Attention& a, const Values& v, const Mask& mask) {
  return first_two(at::_scaled_dot_product_cudnn_attention(
      v[0], v[1], v[2], mask, /*compute_log_sumexp=*/true, 0.0, a.is_causal,
      /*return_debug_mask=*/false, a.scale));
}

template <class N>
Entry<N> batch_norm(const char* name) {
  return Entry<N>(name)
      .role("input", &N::input_)
      .role("weight", &N::weight_)
      .role("running_mean", &N::running_mean_)
      .role("running_var", &N::running_var_)
      .role("result1", &N::result1_)
      .role("result2", &N::result2_)
      .makes_new();
}

std::vector<Kind> norms() {
  using L = NativeLayerNormBackward0;
  using R = FusedRmsNormBackward0;
  using G = NativeGroupNormBackward0;
  return {
      Entry<L>("NativeLayerNormBackward0")
          .role("input", &L::input_)
          .role("weight", &L::weight_)
          .role("bias", &L::bias_)
          .role("result1", &L::result1_)
          .role("result2", &L::result2_)
          .constants(&L::normalized_shape)
          .kind,
      Entry<R>("FusedRmsNormBackward0")
          .role("input", &R::input_)
          .role("weight", &R::weight_)
          .role("result1", &R::result1_)
          .constants(&R::normalized_shape)
          .kind,
      Entry<G>("NativeGroupNormBackward0")
          .role("input", &G::input_)
          .role("weight", &G::weight_)
          .role("result1", &G::result1_)
          .role("result2", &G::result2_)
          .constants(&G::N, &G::C, &G::HxW, &G::group, &G::eps)
          .makes_new()
          .kind,
      batch_norm<NativeBatchNormBackward0>("NativeBatchNormBackward0")
          .constants(&NativeBatchNormBackward0::eps, &NativeBatchNormBackward0::training)
          .kind,
      batch_norm<CudnnBatchNormBackward0>("CudnnBatchNormBackward0")
          .constants(&CudnnBatchNormBackward0::epsilon, &CudnnBatchNormBackward0::training)
          .kind,
  };
}

std::vector<Kind> products() {
  using C = ConvolutionBackward0;
  using A = AddmmBackward0;
  using M = MmBackward0;
  using B = BmmBackward0;
  using D = BaddbmmBackward0;
  return {
      Entry<C>("ConvolutionBackward0").role("input", &C::input_).role("weight", &C::weight_).kind,
      Entry<A>("AddmmBackward0")
          .role("mat1", &A::mat1_)
          .role("mat2", &A::mat2_)
          .constants(&A::alpha, &A::beta)
          .kind,
      Entry<M>("MmBackward0").role("self", &M::self_).role("mat2", &M::mat2_).kind,
      Entry<B>("BmmBackward0").role("self", &B::self_).role("mat2", &B::mat2_).kind,
      Entry<D>("BaddbmmBackward0").role("batch1", &D::batch1_).role("batch2", &D::batch2_).kind,
      attention<ScaledDotProductFlashAttentionBackward0>("ScaledDotProductFlashAttentionBackward0",
                                                         by_flash),
      attention<ScaledDotProductEfficientAttentionBackward0>(
          "ScaledDotProductEfficientAttentionBackward0", by_efficient),
      attention<ScaledDotProductCudnnAttentionBackward0>("ScaledDotProductCudnnAttentionBackward0",
                                                         by_cudnn),
      attention<ScaledDotProductFlashAttentionForCpuBackward0>(
          "ScaledDotProductFlashAttentionForCpuBackward0", on_cpu),
  };
}

std::vector<Kind> pointwise() {
  using H = HardtanhBackward0;
  using L0 = LeakyReluBackward0;
  using L1 = LeakyReluBackward1;
  using G = GeluBackward0;
  using M = MulBackward0;
  using D = NativeDropoutBackward0;
  using P = PowBackward0;
  using V = DivBackward0;
  return {
      with_result<ReluBackward0>("ReluBackward0"),
      with_result<TanhBackward0>("TanhBackward0"),
      with_result<SigmoidBackward0>("SigmoidBackward0"),
      with_result<ExpBackward0>("ExpBackward0"),
      with_result<SqrtBackward0>("SqrtBackward0"),
      with_result<RsqrtBackward0>("RsqrtBackward0"),
      with_result<SoftmaxBackward0>("SoftmaxBackward0"),
      with_result<LogSoftmaxBackward0>("LogSoftmaxBackward0"),
      with_self<SiluBackward0>("SiluBackward0"),
      with_self<HardswishBackward0>("HardswishBackward0"),
      with_self<MishBackward0>("MishBackward0"),
      with_self<GluBackward0>("GluBackward0"),
      with_self<EluBackward0>("EluBackward0"),
      with_self<SoftplusBackward0>("SoftplusBackward0"),
      Entry<G>("GeluBackward0").role("self", &G::self_).constants(&G::approximate).kind,
      Entry<H>("HardtanhBackward0")
          .role("self", &H::self_)
          .constants(&H::min_val, &H::max_val)
          .kind,
      Entry<L0>("LeakyReluBackward0").role("self", &L0::self_).constants(&L0::negative_slope).kind,
      Entry<L1>("LeakyReluBackward1")
          .role("result", &L1::result_)
          .constants(&L1::negative_slope)
          .kind,
      Entry<M>("MulBackward0").role("self", &M::self_).role("other", &M::other_).kind,
      Entry<V>("DivBackward0").role("self", &V::self_).role("other", &V::other_).kind,
      Entry<D>("NativeDropoutBackward0").role("result1", &D::result1_).constants(&D::p).kind,
      Entry<P>("PowBackward0").role("self", &P::self_).constants(&P::exponent).kind,
      Entry<AddBackward0>("AddBackward0").constants(&AddBackward0::alpha).kind,
      plain<ToCopyBackward0>("ToCopyBackward0"),
      plain<CloneBackward0>("CloneBackward0"),
  };
}

std::vector<Kind> places() {
  using P = MaxPool2DWithIndicesBackward0;
  using E = EmbeddingBackward0;
  return {
      Entry<P>("MaxPool2DWithIndicesBackward0")
          .role("self", &P::self_)
          .role("result1", &P::result1_)
          .constants(&P::kernel_size, &P::stride, &P::padding, &P::dilation)
          .kind,
      with_self_and_indices<MaxPool3DWithIndicesBackward0>("MaxPool3DWithIndicesBackward0"),
      with_self_and_indices<AdaptiveMaxPool2DBackward0>("AdaptiveMaxPool2DBackward0"),
      with_self_and_indices<AdaptiveMaxPool3DBackward0>("AdaptiveMaxPool3DBackward0"),
      with_self<AvgPool2DBackward0>("AvgPool2DBackward0"),
      with_self<AvgPool3DBackward0>("AvgPool3DBackward0"),
      with_self<AdaptiveAvgPool2DBackward0>("AdaptiveAvgPool2DBackward0"),
      with_self<AdaptiveAvgPool3DBackward0>("AdaptiveAvgPool3DBackward0"),
      with_self<ReflectionPad1DBackward0>("ReflectionPad1DBackward0"),
      with_self<ReflectionPad2DBackward0>("ReflectionPad2DBackward0"),
      with_self<ReflectionPad3DBackward0>("ReflectionPad3DBackward0"),
      with_self<ReplicationPad1DBackward0>("ReplicationPad1DBackward0"),
      with_self<ReplicationPad2DBackward0>("ReplicationPad2DBackward0"),
      with_self<ReplicationPad3DBackward0>("ReplicationPad3DBackward0"),
      Entry<E>("EmbeddingBackward0")
          .role("indices", &E::indices_)
          .constants(&E::weight_sym_argsize_0)
          .kind,
  };
}

std::vector<Kind> views() {
  return {
      view<ViewBackward0>("ViewBackward0", true),
      view<UnsafeViewBackward0>("UnsafeViewBackward0", true),
      view<ReshapeAliasBackward0>("ReshapeAliasBackward0", true),
      view<AliasBackward0>("AliasBackward0"),
      view<TBackward0>("TBackward0"),
      view<TransposeBackward0>("TransposeBackward0"),
      view<PermuteBackward0>("PermuteBackward0"),
      view<UnsqueezeBackward0>("UnsqueezeBackward0"),
      view<SqueezeBackward0>("SqueezeBackward0"),
      view<SqueezeBackward1>("SqueezeBackward1"),
      view<SqueezeBackward2>("SqueezeBackward2"),
      view<ExpandBackward0>("ExpandBackward0"),
      view<SelectBackward0>("SelectBackward0"),
      view<SliceBackward0>("SliceBackward0"),
      view<SplitBackward0>("SplitBackward0"),
      view<SplitWithSizesBackward0>("SplitWithSizesBackward0"),
      view<UnbindBackward0>("UnbindBackward0"),
      view<AsStridedBackward0>("AsStridedBackward0"),
  };
}

struct Table {
  std::vector<Kind> all;
  std::unordered_map<std::type_index, const Kind*> by_type;

  Table() {
    for (auto* group : {norms, products, pointwise, places, views}) {
      for (Kind& kind : group()) all.push_back(std::move(kind));
    }
    for (const Kind& kind : all) by_type.emplace(*kind.type, &kind);
  }
};

const Table& table() {
  static const Table table;
  return table;
}

}  // namespace

int Kind::role(std::string_view wanted) const {
  for (std::size_t i = 0; i < roles.size(); ++i) {
    if (roles[i].first == wanted) return static_cast<int>(i);
  }
  return -1;
}

const Kind* kind_of(const Node& node) {
  const auto& by_type = table().by_type;
  const auto found = by_type.find(typeid(node));
  return found == by_type.end() ? nullptr : found->second;
}

const Kind* kind_named(std::string_view name) {
  for (const Kind& kind : table().all) {
    if (kind.name == name) return &kind;
  }
  return nullptr;
}

void signature_of(const Kind& kind, Node& node, std::vector<double>& out) {
  double edges = 1;
  for (const auto& edge : node.next_edges()) edges = 2 * edges + (edge.is_valid() ? 1 : 0);
  out.push_back(edges);
  if (kind.constants) kind.constants(node, out);
}

}  // namespace tuckfold::hooks
