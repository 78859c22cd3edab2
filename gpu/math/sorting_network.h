#pragma once

#include <cstddef>
#include <utility>

#include "gpu/math/host_device.h"

// Sorting and merging networks: sequences of exchanges that do not depend on the values, made when
// the program is compiled. A value that the caller does not use costs nothing, because the compiler
// leaves out the exchanges that lead only to it.
namespace octavo::inline gpu::math {

/// The lower and the higher of two numbers. A type of several lanes brings its own.
template <typename V>
OCTAVO_HOST_DEVICE inline V Lower(V a, V b) {
  return b < a ? b : a;
}
template <typename V>
OCTAVO_HOST_DEVICE inline V Higher(V a, V b) {
  return b < a ? a : b;
}

/// An exchange puts the lower value on wire `low`, the higher one on wire `high`. In the end the
/// value of rank r is on wire order[r].
template <int kWires>
struct Network {
  static constexpr int kMost = kWires * 8;  // enough for up to 100 wires
  struct Exchange {
    int low = 0, high = 0;
  };
  Exchange exchanges[kMost] = {};
  int count = 0;
  int order[kWires] = {};
  constexpr void Add(int low, int high) { exchanges[count++] = {low, high}; }
};

/// Sorts any values. Source: Knuth, The Art of Computer Programming 3, algorithm 5.2.2M (Batcher's
/// merge exchange).
template <int kWires>
constexpr Network<kWires> SortingNetwork() {
  Network<kWires> net;
  int top = 1;
  while (2 * top < kWires) top *= 2;
  for (int p = kWires > 1 ? top : 0; p > 0; p /= 2) {
    for (int q = top, r = 0, d = p;; d = q - p, q /= 2, r = p) {
      for (int i = 0; i + d < kWires; ++i) {
        if ((i & p) == r) net.Add(i, i + d);
      }
      if (q == p) break;
    }
  }
  for (int i = 0; i < kWires; ++i) net.order[i] = i;
  return net;
}

namespace network {
/// Wires in the order of their values.
template <int kWires>
struct Wires {
  int at[kWires] = {};
  int count = 0;
  constexpr void Append(int wire) { at[count++] = wire; }
  constexpr Wires EverySecond(int from) const {
    Wires out;
    for (int i = from; i < count; i += 2) out.Append(at[i]);
    return out;
  }
};
/// Source: Knuth, 5.3.4 (Batcher's odd-even merge).
template <int kWires>
constexpr Wires<kWires> Merge(const Wires<kWires>& a, const Wires<kWires>& b,
                              Network<kWires>* net) {
  if (a.count == 0) return b;
  if (b.count == 0) return a;
  Wires<kWires> out;
  if (a.count == 1 && b.count == 1) {
    net->Add(a.at[0], b.at[0]);
    out.Append(a.at[0]);
    out.Append(b.at[0]);
    return out;
  }
  const Wires<kWires> odd = Merge(a.EverySecond(0), b.EverySecond(0), net),
                      even = Merge(a.EverySecond(1), b.EverySecond(1), net);
  out.Append(odd.at[0]);
  for (int i = 0; i < even.count || i + 1 < odd.count; ++i) {
    if (i < even.count && i + 1 < odd.count) net->Add(even.at[i], odd.at[i + 1]);
    if (i < even.count) out.Append(even.at[i]);
    if (i + 1 < odd.count) out.Append(odd.at[i + 1]);
  }
  return out;
}
}  // namespace network

/// Merges two sorted halves of the wires.
template <int kWires>
constexpr Network<kWires> MergingNetwork() {
  Network<kWires> net;
  network::Wires<kWires> a, b;
  for (int i = 0; i < kWires; ++i) (i < kWires / 2 ? a : b).Append(i);
  const network::Wires<kWires> merged = network::Merge(a, b, &net);
  for (int i = 0; i < kWires; ++i) net.order[i] = merged.at[i];
  return net;
}

template <int kWires>
struct Sorting {
  static constexpr Network<kWires> kNetwork = SortingNetwork<kWires>();
};
template <int kWires>
struct Merging {
  static constexpr Network<kWires> kNetwork = MergingNetwork<kWires>();
};

namespace network {
template <int kLow, int kHigh, typename V, int kWires>
OCTAVO_HOST_DEVICE inline void ExchangeWires(V (&v)[kWires]) {
  const V low = Lower(v[kLow], v[kHigh]);
  v[kHigh] = Higher(v[kLow], v[kHigh]);
  v[kLow] = low;
}
template <typename Kind, typename V, int kWires, size_t... kAt>
OCTAVO_HOST_DEVICE inline void Run(V (&v)[kWires], std::index_sequence<kAt...>) {
  (ExchangeWires<Kind::kNetwork.exchanges[kAt].low, Kind::kNetwork.exchanges[kAt].high>(v), ...);
}
template <typename Kind, int kFirst, typename V, int kWires, int kTaken, size_t... kAt>
OCTAVO_HOST_DEVICE inline void Take(const V (&v)[kWires], V (&out)[kTaken],
                                    std::index_sequence<kAt...>) {
  ((out[kAt] = v[std::integral_constant<int, Kind::kNetwork.order[kFirst + kAt]>::value]), ...);
}
}  // namespace network

template <typename V, int kCount>
OCTAVO_HOST_DEVICE inline void SortAll(V (&v)[kCount]) {
  using Kind = Sorting<kCount>;
  network::Run<Kind>(v, std::make_index_sequence<Kind::kNetwork.count>());
}

/// The values of ranks kFirst ... kFirst + kTaken - 1 of two sorted sequences together, sorted.
template <int kFirst, typename V, int kEach, int kTaken>
OCTAVO_HOST_DEVICE inline void MergeSorted(const V (&a)[kEach], const V (&b)[kEach],
                                           V (&out)[kTaken]) {
  using Kind = Merging<2 * kEach>;
  V v[2 * kEach];
#if defined(__CUDA_ARCH__)
#pragma unroll
#endif
  for (int i = 0; i < kEach; ++i) {
    v[i] = a[i];
    v[kEach + i] = b[i];
  }
  network::Run<Kind>(v, std::make_index_sequence<Kind::kNetwork.count>());
  network::Take<Kind, kFirst>(v, out, std::make_index_sequence<kTaken>());
}

}  // namespace octavo::inline gpu::math
