#pragma once

// The parts of oneTBB that Octavo uses, on std::thread, for the tsan preset only, where this header
// precedes Debian's. The library itself is not instrumented, so ThreadSanitizer does not see the
// ordering by its scheduler and reports every loop as a race. Suppressing those reports would also
// hide races in the bodies of the loops; this header keeps them checked. A body that throws ends
// the program.

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace tbb {
namespace for_tsan {

inline std::atomic<size_t> most_threads{3};

/// Two workers for the whole program. A waiting thread may run the job itself, so that no deadlock
/// can occur.
class Pool {
 public:
  static Pool& Instance() {
    static Pool pool;
    return pool;
  }
  void Post(std::function<void()> job) {
    {
      std::lock_guard lock(mutex_);
      jobs_.push_back(std::move(job));
    }
    news_.notify_one();
  }

 private:
  Pool() {
    for (int i = 0; i < 2; ++i) workers_.emplace_back([this] { Work(); });
  }
  ~Pool() {
    {
      std::lock_guard lock(mutex_);
      ended_ = true;
    }
    news_.notify_all();
    for (auto& worker : workers_) worker.join();
  }
  void Work() {
    for (;;) {
      std::function<void()> job;
      {
        std::unique_lock lock(mutex_);
        news_.wait(lock, [&] { return ended_ || !jobs_.empty(); });
        if (jobs_.empty()) return;
        job = std::move(jobs_.front());
        jobs_.pop_front();
      }
      job();
    }
  }

  std::mutex mutex_;
  std::condition_variable news_;
  std::deque<std::function<void()>> jobs_;
  bool ended_ = false;
  std::vector<std::thread> workers_;
};

/// Runs `step(i)` for 0 <= i < count, on this thread and on idle workers; returns when all are
/// done.
inline void Run(size_t count, const std::function<void(size_t)>& step) {
  struct Loop {
    std::atomic<size_t> next{0};
    std::mutex mutex;
    std::condition_variable changed;
    size_t done = 0;
  };
  if (count == 0) return;
  const auto loop = std::make_shared<Loop>();
  // A worker that starts after all steps are taken uses only `loop`, never `step`, which may no
  // longer exist.
  const auto take = [loop, count, &step] {
    for (size_t i = loop->next.fetch_add(1, std::memory_order_relaxed); i < count;
         i = loop->next.fetch_add(1, std::memory_order_relaxed)) {
      step(i);
      std::lock_guard lock(loop->mutex);
      if (++loop->done == count) loop->changed.notify_all();
    }
  };
  const size_t helpers = std::min(count, most_threads.load()) - 1;
  for (size_t i = 0; i < helpers; ++i) Pool::Instance().Post(take);
  take();
  std::unique_lock lock(loop->mutex);
  loop->changed.wait(lock, [&] { return loop->done == count; });
}

inline uint64_t ThreadNumber() {  // unique, unlike std::thread::id
  static std::atomic<uint64_t> last{0};
  thread_local const uint64_t mine = ++last;
  return mine;
}

}  // namespace for_tsan

template <class T>
class blocked_range {
 public:
  using const_iterator = T;
  blocked_range(T begin, T end, size_t grain = 1) : begin_(begin), end_(end), grain_(grain) {}
  T begin() const { return begin_; }
  T end() const { return end_; }
  size_t size() const { return static_cast<size_t>(end_ - begin_); }
  size_t grainsize() const { return grain_; }
  bool empty() const { return !(begin_ < end_); }
  std::vector<blocked_range> Pieces() const {
    std::vector<blocked_range> pieces;
    const auto step = static_cast<T>(std::max(grain_, size() / 8 + 1));
    for (T at = begin_; at < end_; at = std::min<T>(end_, at + step))
      pieces.emplace_back(at, std::min<T>(end_, at + step), grain_);
    return pieces;
  }

 private:
  T begin_, end_;
  size_t grain_;
};

template <class T, class Body>
void parallel_for(const blocked_range<T>& range, const Body& body) {
  const auto pieces = range.Pieces();
  for_tsan::Run(pieces.size(), [&](size_t i) { body(pieces[i]); });
}
template <class T, class Body>
void parallel_for(T first, T last, const Body& body) {
  parallel_for(blocked_range<T>(first, last), [&](const blocked_range<T>& range) {
    for (T i = range.begin(); i < range.end(); ++i) body(i);
  });
}
template <class T, class Value, class Body, class Join>
Value parallel_reduce(const blocked_range<T>& range, const Value& identity, const Body& body,
                      const Join& join) {
  const auto pieces = range.Pieces();
  std::vector<Value> parts(pieces.size(), identity);
  for_tsan::Run(pieces.size(), [&](size_t i) { parts[i] = body(pieces[i], identity); });
  Value all = identity;
  for (const Value& part : parts) all = join(all, part);
  return all;
}
template <class... Call>
void parallel_invoke(const Call&... calls) {
  const std::function<void()> list[] = {std::cref(calls)...};
  for_tsan::Run(sizeof...(calls), [&](size_t i) { list[i](); });
}

template <class T>
class enumerable_thread_specific {
 public:
  enumerable_thread_specific() : make_([] { return std::make_unique<T>(); }) {}
  template <class Make>
  requires std::is_invocable_r_v<T, Make>
  explicit enumerable_thread_specific(Make make)
      : make_([make] { return std::unique_ptr<T>(new T(make())); }) {}
  explicit enumerable_thread_specific(const T& value)
      : make_([value] { return std::make_unique<T>(value); }) {}

  T& local() {
    std::lock_guard lock(mutex_);
    auto& mine = values_[for_tsan::ThreadNumber()];
    if (mine == nullptr) mine = make_();
    return *mine;
  }
  template <class Call>
  void combine_each(const Call& call) {
    for (auto& [thread, value] : values_) call(*value);
  }
  class iterator {
   public:
    explicit iterator(typename std::map<uint64_t, std::unique_ptr<T>>::iterator at) : at_(at) {}
    T& operator*() const { return *at_->second; }
    T* operator->() const { return at_->second.get(); }
    iterator& operator++() { return ++at_, *this; }
    bool operator==(const iterator&) const = default;

   private:
    typename std::map<uint64_t, std::unique_ptr<T>>::iterator at_;
  };
  iterator begin() { return iterator(values_.begin()); }
  iterator end() { return iterator(values_.end()); }
  size_t size() const { return values_.size(); }
  void clear() { values_.clear(); }

 private:
  std::function<std::unique_ptr<T>()> make_;
  std::mutex mutex_;
  std::map<uint64_t, std::unique_ptr<T>> values_;
};

class task_arena {
 public:
  static constexpr int automatic = -1;
  enum class priority { low, normal, high };
  explicit task_arena(int = automatic, unsigned = 1, priority = priority::normal) {}
  int max_concurrency() const { return static_cast<int>(for_tsan::most_threads); }
  template <class Call>
  auto execute(const Call& call) {
    return call();
  }
};
namespace this_task_arena {
inline int max_concurrency() { return static_cast<int>(for_tsan::most_threads); }
template <class Call>
auto isolate(const Call& call) {
  return call();
}
}  // namespace this_task_arena
namespace info {
inline int default_concurrency() { return static_cast<int>(for_tsan::most_threads); }
}  // namespace info

class global_control {
 public:
  enum parameter { max_allowed_parallelism };
  global_control(parameter, size_t most)
      : before_(for_tsan::most_threads.exchange(std::min<size_t>(most, 3))) {}
  ~global_control() { for_tsan::most_threads = before_; }
  global_control(const global_control&) = delete;
  global_control& operator=(const global_control&) = delete;

 private:
  const size_t before_;
};

}  // namespace tbb
