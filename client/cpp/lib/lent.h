#pragma once

#include <memory>
#include <utility>

#include "client/cpp/include/octavo/octavo.h"
#include "client/cpp/lib/handoff.h"

namespace octavo::client {

/// The connection is the reference: its end is that of the buffer.
class Lent::Impl {
 public:
  Impl(std::shared_ptr<Handoff> of, Handoff::Loan of_what)
      : handoff(std::move(of)), loan(std::move(of_what)) {}
  const std::shared_ptr<Handoff> handoff;  // for this loan alone
  const Handoff::Loan loan;
};

}  // namespace octavo::client
