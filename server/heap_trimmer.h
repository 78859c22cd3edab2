#pragma once

#include <cstdint>
#include <functional>
#include <utility>

namespace octavo {

/// Gives memory back to the kernel that the heap keeps although it is free. A burst of calls (a
/// client that opens and resets them faster than they are begun) may leave gigabytes of it, in
/// pieces between what is still used. Used by one thread.
class HeapTrimmer {
 public:
  struct Heap {
    int64_t free_bytes = 0;      // of the heap, given back before or not
    int64_t resident_bytes = 0;  // of the whole process
  };
  struct Calls {
    std::function<Heap()> look;
    std::function<void()> trim;  // may take a second, during which threads wait for memory
    std::function<bool()> idle;  // whether nobody minds that
  };
  /// Less than this is not worth the work.
  static constexpr int64_t kWorth = int64_t{64} << 20;

  explicit HeapTrimmer(Calls calls) : calls_(std::move(calls)) {}
  /// With the heap of this process.
  explicit HeapTrimmer(std::function<bool()> idle);
  /// Trims if the heap has kWorth that is free, and since the last trim either so much became free
  /// (what a burst still used at that trim) or the process has grown by so much. What grows may be
  /// none of the heap's: a trim that gives little back doubles the growth that is a reason, up to
  /// 16 times. Call it now and then.
  void Turn();

 private:
  const Calls calls_;
  Heap least_;               // that was seen since the last trim
  int64_t growth_ = kWorth;  // that is a reason: more after a trim that gave little back
};

}  // namespace octavo
