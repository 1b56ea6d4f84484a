/* SPDX-License-Identifier: MIT
 *
 * Latchkey for C++17: the C interface with destructors, and a lock that std::unique_lock,
 * std::scoped_lock and std::lock accept.
 *
 *   latchkey::client client;
 *   latchkey::lock nightly(client, "nightly");
 *   std::unique_lock<latchkey::lock> hold(nightly, std::chrono::seconds(5));
 *   if (hold)
 *           store_report(nightly.fence());
 *
 * What fails throws latchkey::error; that another holds the lock is no failure but a false.
 *
 * unlock() never throws, since guards call it from their destructors, also while another exception
 * is on its way: a hold that had been lost is then acknowledged in silence.  Who must know before
 * committing something asks is_mine() or state(), or ends the hold with release(), which tells.
 * The fence is what stops a holder that does not ask. */
#ifndef LATCHKEY_HPP
#define LATCHKEY_HPP

#include "latchkey.h"

#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace latchkey
{

class error : public std::runtime_error
{
public:
	/* Takes the detail of this thread's last failure along. */
	explicit error(lk_err code)
	    : std::runtime_error(std::string(lk_err_name(code)) + ": " +
	                         (*lk_errmsg() ? lk_errmsg() : lk_err_text(code))),
	      code_(code)
	{
	}

	lk_err code() const noexcept
	{
		return code_;
	}

private:
	lk_err code_;
};

/* An owner of one lk_client.  Outlives the locks opened from it. */
class client
{
public:
	explicit client(const char *url = nullptr, const lk_client_options *options = nullptr)
	{
		lk_err err = lk_client_open(url, options, &handle_);
		if (err != LK_OK)
			throw error(err);
	}

	explicit client(const std::string &url, const lk_client_options *options = nullptr)
	    : client(url.c_str(), options)
	{
	}

	client(client &&other) noexcept : handle_(other.handle_)
	{
		other.handle_ = nullptr;
	}

	client &operator=(client &&other) noexcept
	{
		if (this != &other) {
			lk_client_close(handle_);
			handle_ = other.handle_;
			other.handle_ = nullptr;
		}
		return *this;
	}

	client(const client &) = delete;
	client &operator=(const client &) = delete;

	~client()
	{
		lk_client_close(handle_);
	}

	lk_client *native_handle() const noexcept
	{
		return handle_;
	}

private:
	lk_client *handle_ = nullptr;
};

/* An owner of one lk_lock.  Reentrant: the owner may lock it again, through any handle.  Known as
 * latchkey::lock; the class needs another name, since one called lock cannot have a lock(). */
class named_lock
{
public:
	named_lock(const client &from, const std::string &name, lk_lock_options options = {})
	{
		options.name_len = name.size();
		check(lk_lock_open(from.native_handle(), name.c_str(), &options, &handle_));
	}

	named_lock(named_lock &&other) noexcept : handle_(other.handle_)
	{
		other.handle_ = nullptr;
	}

	named_lock &operator=(named_lock &&other) noexcept
	{
		if (this != &other) {
			lk_lock_close(handle_);
			handle_ = other.handle_;
			other.handle_ = nullptr;
		}
		return *this;
	}

	named_lock(const named_lock &) = delete;
	named_lock &operator=(const named_lock &) = delete;

	/* Releases what was acquired through it. */
	~named_lock()
	{
		lk_lock_close(handle_);
	}

	/* Wait as long as it takes. */
	void lock()
	{
		check(lk_lock_acquire(handle_, LK_FOREVER));
	}

	/* False when another holds it. */
	bool try_lock()
	{
		return acquire(0);
	}

	/* False when it was not to be had in time.  Parts of a millisecond are rounded up. */
	template <class Rep, class Period>
	bool try_lock_for(const std::chrono::duration<Rep, Period> &wait)
	{
		using milliseconds = std::chrono::duration<int64_t, std::milli>;
		const std::chrono::duration<double, std::milli> limit(LONGEST_WAIT_MS);

		if (wait <= wait.zero())
			return acquire(0);
		/* What does not fit the C interface is longer than anybody waits. */
		if (wait > limit)
			return acquire(LONGEST_WAIT_MS);
		return acquire(std::chrono::ceil<milliseconds>(wait).count());
	}

	template <class Clock, class Duration>
	bool try_lock_until(const std::chrono::time_point<Clock, Duration> &deadline)
	{
		const auto now = Clock::now();

		/* A deadline of long ago would overflow the difference. */
		return deadline <= now ? try_lock() : try_lock_for(deadline - now);
	}

	/* For guards: never throws, and does not say whether the hold had been lost. */
	void unlock() noexcept
	{
		lk_lock_release(handle_);
	}

	/* As unlock(), but tells: LK_ELOST when somebody else may have been in meanwhile. */
	void release()
	{
		check(lk_lock_release(handle_));
	}

	/* End every wait in progress on this handle; they throw LK_ECANCELED.  Any thread. */
	void cancel()
	{
		check(lk_lock_cancel(handle_));
	}

	uint64_t fence() const noexcept
	{
		return lk_lock_fence(handle_);
	}

	bool is_mine() const noexcept
	{
		return lk_lock_is_mine(handle_);
	}

	lk_state state() const noexcept
	{
		return lk_lock_state(handle_);
	}

	lk_lock *native_handle() const noexcept
	{
		return handle_;
	}

private:
	static constexpr int64_t LONGEST_WAIT_MS = INT64_C(1) << 50;

	static void check(lk_err err)
	{
		if (err != LK_OK)
			throw error(err);
	}

	bool acquire(int64_t wait_ms)
	{
		lk_err err = lk_lock_acquire(handle_, wait_ms);

		if (err == LK_EBUSY || err == LK_ETIMEDOUT)
			return false;
		check(err);
		return true;
	}

	lk_lock *handle_ = nullptr;
};

using lock = named_lock;

} // namespace latchkey

#endif
