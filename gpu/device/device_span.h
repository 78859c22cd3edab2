#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

// Views of memory that say in their type which memory it is.
namespace octavo::inline gpu {

/// kDevice: memory of a device, which the calling thread must not dereference. kHost: what it may.
enum class MemoryKind : uint8_t { kDevice, kHost };

/// `count` elements of T in memory of one kind. A pointer and a count, passed by value: it owns
/// nothing, and must not outlive the memory. A view of one kind does not become one of the other;
/// data() is for those who launch, who know what they hand to whom. A null view has no data: where
/// an interface allows it, something is not wanted or not given.
template <class T, MemoryKind kKind>
class MemorySpan {
 public:
  using Element = T;

  constexpr MemorySpan() = default;
  constexpr MemorySpan(std::nullptr_t) {}  // NOLINT(google-explicit-constructor)
  constexpr MemorySpan(T* data, int64_t count) : data_(data), count_(count) {}
  /// Of elements that may be written to the same ones to read.
  template <class U, class = std::enable_if_t<std::is_same_v<const U, T> && !std::is_const_v<U>>>
  constexpr MemorySpan(MemorySpan<U, kKind> other)  // NOLINT(google-explicit-constructor)
      : data_(other.data()), count_(other.count()) {}
  /// Host memory of a vector.
  template <class U,
            class = std::enable_if_t<kKind == MemoryKind::kHost && std::is_same_v<const U, T>>>
  constexpr MemorySpan(const std::vector<U>& values)  // NOLINT(google-explicit-constructor)
      : data_(values.data()), count_(static_cast<int64_t>(values.size())) {}

  constexpr T* data() const { return data_; }
  constexpr int64_t count() const { return count_; }
  constexpr int64_t bytes() const { return count_ * static_cast<int64_t>(sizeof(T)); }
  constexpr explicit operator bool() const { return data_ != nullptr; }

  /// What is left behind the first `offset` elements.
  constexpr MemorySpan From(int64_t offset) const { return {data_ + offset, count_ - offset}; }
  /// The first `count` elements.
  constexpr MemorySpan First(int64_t count) const { return {data_, count}; }
  /// The same memory as elements of another type; a rest that makes no whole one is left out.
  template <class U>
  MemorySpan<U, kKind> As() const {
    return {reinterpret_cast<U*>(data_), bytes() / static_cast<int64_t>(sizeof(U))};
  }

 private:
  T* data_ = nullptr;
  int64_t count_ = 0;
};

template <class T>
using DeviceSpan = MemorySpan<T, MemoryKind::kDevice>;
template <class T>
using HostSpan = MemorySpan<T, MemoryKind::kHost>;

}  // namespace octavo::inline gpu
