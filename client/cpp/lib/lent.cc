#include "client/cpp/lib/lent.h"

namespace octavo::client {

Lent::Lent(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Lent::Lent(Lent&&) noexcept = default;
Lent& Lent::operator=(Lent&&) noexcept = default;
Lent::~Lent() = default;

const std::string& Lent::name() const { return impl_->loan.buffer; }
uint64_t Lent::Publish() { return impl_->handoff->Publish(impl_->loan); }
std::string Lent::Ended() { return impl_->handoff->EndOf(impl_->loan); }
void Lent::Close() { impl_->handoff->End(impl_->loan); }

}  // namespace octavo::client
