#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

// Views of memory whose type says which kind of memory they refer to.
namespace octavo::inline gpu {

/// kDevice: memory of a device, which the calling thread must not dereference. kHost: memory that
/// the calling thread may dereference.
enum class MemoryKind : uint8_t { kDevice, kHost };

/// `count` elements of T in memory of one kind. The view is a pointer and a count, passed by value.
/// It owns nothing and must not outlive the memory. A view of one kind does not convert to the
/// other kind. Only code that launches work should call data(), because there the type no longer
/// protects the pointer. A null view has no data. Where an interface allows a null view, it stands
/// for an output that the caller does not want or an input that the caller does not give.
template <class T, MemoryKind kKind>
class MemorySpan {
 public:
  using Element = T;

  constexpr MemorySpan() = default;
  constexpr MemorySpan(std::nullptr_t) {}  // NOLINT(google-explicit-constructor)
  constexpr MemorySpan(T* data, int64_t count) : data_(data), count_(count) {}
  /// Converts a view of mutable elements to a view of the same elements as const.
  template <class U, class = std::enable_if_t<std::is_same_v<const U, T> && !std::is_const_v<U>>>
  constexpr MemorySpan(MemorySpan<U, kKind> other)  // NOLINT(google-explicit-constructor)
      : data_(other.data()), count_(other.count()) {}
  /// A view of a vector's host memory.
  template <class U,
            class = std::enable_if_t<kKind == MemoryKind::kHost && std::is_same_v<const U, T>>>
  constexpr MemorySpan(const std::vector<U>& values)  // NOLINT(google-explicit-constructor)
      : data_(values.data()), count_(static_cast<int64_t>(values.size())) {}

  constexpr T* data() const { return data_; }
  constexpr int64_t count() const { return count_; }
  constexpr int64_t bytes() const { return count_ * static_cast<int64_t>(sizeof(T)); }
  constexpr explicit operator bool() const { return data_ != nullptr; }

  /// The view without its first `offset` elements.
  constexpr MemorySpan From(int64_t offset) const { return {data_ + offset, count_ - offset}; }
  /// The first `count` elements.
  constexpr MemorySpan First(int64_t count) const { return {data_, count}; }
  /// The same memory as elements of another type. A remainder too short for a whole element is left
  /// out.
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
