#pragma once

#include <string>

namespace octavo::security {

/// To whom an object belongs: who made it, at that time. A plain value: it goes with specs into the
/// records of what they make, and never changes.
struct Owner {
  std::string name;     // of the principal; empty: nobody's, as what was found on a disk may be
  std::string project;  // of the principal; may be empty
  bool operator==(const Owner&) const = default;
};

}  // namespace octavo::security
