#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/device/device.h"

// How a device holds operators without depending on their families. An operator family is an
// interface (SpectralOps, ProjectOps …) with one implementation for each backend: its twins. A
// backend makes its twins when it opens a device (gpu/backend). Code that needs a family asks the
// device for it.
namespace octavo::inline gpu {

/// Identifies the family of an interface, which declares `static constexpr OperatorFamily
/// kFamily{"projections"};`. The address of kFamily is the identity of the family.
struct OperatorFamily {
  const char* name;  // for messages
};

/// Base of the interfaces of all families.
class Operators {
 public:
  virtual ~Operators() = default;
};

/// Owner of the twins that a backend has made for one device. The backend fills it while it opens
/// the device. It is immutable from then on, so that Find takes no lock.
class OperatorSet {
 public:
  template <class Ops>
  absl::Status Add(absl::StatusOr<std::unique_ptr<Ops>> made) {
    if (!made.ok()) return std::move(made).status();
    entries_.push_back({&Ops::kFamily, *std::move(made)});
    return absl::OkStatus();
  }
  /// Returns null if the backend has no twin of the family.
  Operators* Find(const OperatorFamily& family) const {
    for (const Entry& entry : entries_) {
      if (entry.family == &family) return entry.operators.get();
    }
    return nullptr;
  }

 private:
  struct Entry {
    const OperatorFamily* family;
    std::unique_ptr<Operators> operators;
  };
  std::vector<Entry> entries_;
};

/// Unimplemented: the device's backend has no twin of the family.
absl::Status NoTwin(const Device& device, const OperatorFamily& family);

/// The operators of a family on `device`, which owns them. Unimplemented, naming both, if its
/// backend has no twin of the family. Allocates nothing and takes no lock, so that the block path
/// may call it.
template <class Ops>
absl::StatusOr<Ops*> FindOperators(Device& device) {
  if (Operators* const found = device.FindOperators(Ops::kFamily); found != nullptr)
    return static_cast<Ops*>(found);
  return NoTwin(device, Ops::kFamily);
}

/// For the factories of twins: InvalidArgument, naming the family and both backends, unless
/// `device` belongs to the backend `backend`.
absl::Status CheckBackend(const Device& device, const char* backend, const OperatorFamily& family);

}  // namespace octavo::inline gpu
