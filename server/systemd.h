#pragma once

#include <string>

namespace octavo {

/// Whether systemd (or who speaks its protocol) waits for messages of this daemon: it names a
/// socket (NOTIFY_SOCKET).
bool SystemdListens();
/// Whether systemd started this very process. What a service starts inherits its other variables
/// (INVOCATION_ID), so that they say nothing.
bool SystemdStartedThis();
/// One datagram of systemd's readiness protocol (sd_notify), lines of VARIABLE=value. Nothing
/// happens if nobody listens.
void NotifySystemd(const std::string& lines);
/// "EXTEND_TIMEOUT_USEC=…": systemd waits so many seconds from now, whatever its own timeout says.
std::string ExtendTimeout(double seconds);
/// The daemon begins to read its configuration again; "READY=1" ends it.
void NotifyReloading();

}  // namespace octavo
