#pragma once

#include <string>

#include "client/cpp/cli/terminal.h"

namespace octavo::cli {

/// "  of alice (retina)" for whom an object belongs to. Empty for nobody and for TCP without a
/// token, which on one user's machine is all there is.
template <class Message>
std::string OwnerText(const Message& object) {
  if (object.owner().empty() || object.owner() == "loopback") return "";
  return "  of " + Printable(object.owner()) +
         (object.project().empty() ? "" : " (" + Printable(object.project()) + ")");
}

}  // namespace octavo::cli
