#include "server/base/places_by_name.h"

#include <utility>

namespace octavo::base {

class PlacesByName::Place {
 public:
  Place(std::shared_ptr<Taken> taken, const std::string& name)
      : taken_(std::move(taken)), name_(name) {}
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;
  ~Place() {
    if (!counts_) return;
    MutexLock lock(taken_->mutex);
    const auto it = taken_->places.find(name_);
    if (--it->second == 0) taken_->places.erase(it);
  }
  /// False if there is none left.
  bool Count(int most) {
    MutexLock lock(taken_->mutex);
    int& places = taken_->places[name_];
    counts_ = places < most;
    if (counts_) ++places;
    return counts_;
  }

 private:
  const std::shared_ptr<Taken> taken_;
  const std::string name_;
  bool counts_ = false;
};

std::shared_ptr<void> PlacesByName::Take(const std::string& name) {
  auto place = std::make_shared<Place>(taken_, name);
  return place->Count(most_) ? std::shared_ptr<void>(std::move(place)) : nullptr;
}

}  // namespace octavo::base
