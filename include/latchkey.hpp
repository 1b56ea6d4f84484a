/* SPDX-License-Identifier: MIT
 *
 * Latchkey for C++17: the functions of latchkey.h with destructors and exceptions.  A lock that
 * std::unique_lock, std::scoped_lock and std::lock accept, a semaphore and a latch.
 *
 * Example
 *
 *	#include <latchkey.hpp>
 *	#include <iostream>
 *	#include <mutex>
 *
 *	int main()
 *	{
 *		latchkey::client client;
 *		latchkey::lock nightly(client, "nightly");
 *		std::unique_lock<latchkey::lock> hold(nightly, std::chrono::seconds(5));
 *
 *		if (hold)
 *			std::cout << "held, with fence " << nightly.fence() << "\n";
 *		nightly.run([](uint64_t fence) { std::cout << "again, with " << fence << "\n"; });
 *	}
 *
 * A failed call throws latchkey::error.  A try that fails, or a wait that times out, does not
 * throw: it returns false or an empty result.
 *
 * unlock() never throws, because guards call it in their destructors, even during another
 * exception.  So it does not report a loss, but acknowledges it.  To learn of a loss before
 * committing results, call is_mine() or state(), or end the hold with release(), which throws
 * LK_ELOST.  Only the fence stops a holder that does not check.
 *
 * For everything else (queries, guard keys, rate limits, resizing, breaking) call the C function
 * with native_handle(); set on_lost in the options. */
#ifndef LATCHKEY_HPP
#define LATCHKEY_HPP

#include "latchkey.h"

#include <chrono>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>

namespace latchkey
{

class error : public std::runtime_error
{
      public:
	/* Includes lk_errmsg(), the detail of this thread's last failure. */
	explicit error(lk_err code)
	    : std::runtime_error(std::string(lk_err_name(code)) + ": " +
	                         (*lk_errmsg() ? lk_errmsg() : lk_err_text(code))),
	      code_(code)
	{
	}

	/* An error that this header detects. */
	error(lk_err code, const char *text)
	    : std::runtime_error(std::string(lk_err_name(code)) + ": " + text), code_(code)
	{
	}

	lk_err code() const noexcept
	{
		return code_;
	}

	/* As lk_err_is_ambiguous() and lk_err_is_retryable(). */
	bool is_ambiguous() const noexcept
	{
		return lk_err_is_ambiguous(code_);
	}

	bool is_retryable() const noexcept
	{
		return lk_err_is_retryable(code_);
	}

      private:
	lk_err code_;
};

namespace detail
{

constexpr int64_t LONGEST_WAIT_MS = INT64_C(1) << 50;

inline void check(lk_err err)
{
	if (err != LK_OK)
		throw error(err);
}

/* The result of a call that waits: false if nothing was acquired in time. */
inline bool got(lk_err err)
{
	if (err == LK_EBUSY || err == LK_ETIMEDOUT)
		return false;
	check(err);
	return true;
}

/* Round up to milliseconds, and limit the wait to a time that the C function accepts and that no
 * caller will reach. */
template <class Rep, class Period> int64_t wait_ms(const std::chrono::duration<Rep, Period> &wait)
{
	using milliseconds = std::chrono::duration<int64_t, std::milli>;
	const std::chrono::duration<double, std::milli> limit(LONGEST_WAIT_MS);

	if (!(wait > wait.zero())) /* a NaN, too */
		return 0;
	return wait > limit ? LONGEST_WAIT_MS : std::chrono::ceil<milliseconds>(wait).count();
}

/* Check the release at the end of a run. */
inline void check_end(lk_err err)
{
	if (err == LK_ENOTOWNER)
		throw error(err, "the function ended the hold itself");
	check(err);
}

/* Call a function with the fence, if it takes one. */
template <class Function> auto call(Function &fn, uint64_t fence)
{
	if constexpr (std::is_invocable_v<Function &, uint64_t>)
		return fn(fence);
	else
		return fn();
}

/* Call a function while a hold lasts, then release.  If the function throws, release as well, but
 * do not report an error of the release, because the exception leaves. */
template <class Function, class Release>
auto call_and_release(Function &fn, uint64_t fence, const Release &release)
{
	const auto guarded = [&] {
		try {
			return detail::call(fn, fence);
		} catch (...) {
			release();
			throw;
		}
	};

	if constexpr (std::is_void_v<decltype(guarded())>) {
		guarded();
		detail::check_end(release());
	} else {
		auto result = guarded();
		detail::check_end(release());
		return result;
	}
}

/* The same for a hold that was perhaps not acquired (fence 0).  Without a hold the function is not
 * called, and the result is false, or an empty optional. */
template <class Function, class Release>
auto call_if_held(Function &fn, uint64_t fence, const Release &release)
{
	if constexpr (std::is_void_v<decltype(detail::call(fn, fence))>) {
		if (fence)
			detail::call_and_release(fn, fence, release);
		return fence != 0;
	} else {
		using result = std::optional<decltype(detail::call(fn, fence))>;
		return fence ? result(detail::call_and_release(fn, fence, release)) : result();
	}
}

/* Owns one handle of the C interface, and closes it. */
template <class Handle, lk_err (*Close)(Handle *)> class owner
{
      public:
	owner(owner &&other) noexcept : handle_(other.handle_)
	{
		other.handle_ = nullptr;
	}

	owner &operator=(owner &&other) noexcept
	{
		if (this != &other) {
			Close(handle_);
			handle_ = other.handle_;
			other.handle_ = nullptr;
		}
		return *this;
	}

	owner(const owner &) = delete;
	owner &operator=(const owner &) = delete;

	Handle *native_handle() const noexcept
	{
		return handle_;
	}

      protected:
	owner() = default;

	~owner()
	{
		Close(handle_);
	}

	Handle *handle_ = nullptr;
};

} // namespace detail

/* Owns one lk_client.  Must outlive the handles opened from it. */
class client : public detail::owner<lk_client, lk_client_close>
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

	/* The counters since the client was opened. */
	lk_counters counters() const
	{
		lk_counters result;
		detail::check(lk_client_counters(handle_, &result));
		return result;
	}
};

/* Owns one lk_lock.  The destructor releases the holds that were acquired through it.  A held lock
 * may be locked again by its owner, as by lk_lock_acquire().  Use it by the name latchkey::lock; a
 * class called lock could not have a member lock(). */
class named_lock : public detail::owner<lk_lock, lk_lock_close>
{
      public:
	named_lock(const client &from, const std::string &name, const lk_lock_options &options = {})
	    : handle_owns_(options.owner == LK_OWNER_HANDLE)
	{
		detail::check(lk_lock_open(from.native_handle(), name.data(), name.size(), &options,
		                           &handle_));
	}

	/* Wait without limit. */
	void lock()
	{
		detail::check(lk_lock_acquire(handle_, LK_FOREVER, nullptr));
	}

	/* Return false if another owner holds it. */
	bool try_lock()
	{
		return acquire(0);
	}

	/* Return false if it was not acquired in time. */
	template <class Rep, class Period>
	bool try_lock_for(const std::chrono::duration<Rep, Period> &wait)
	{
		return acquire(detail::wait_ms(wait));
	}

	template <class Clock, class Duration>
	bool try_lock_until(const std::chrono::time_point<Clock, Duration> &deadline)
	{
		const auto now = Clock::now();

		/* With a deadline long ago the difference would overflow. */
		return deadline <= now ? try_lock() : try_lock_for(deadline - now);
	}

	/* For guards: never throws, and does not report a loss. */
	void unlock() noexcept
	{
		lk_lock_release(handle_);
	}

	/* As unlock(), but throws: LK_ELOST if another owner may have held the lock. */
	void release()
	{
		detail::check(lk_lock_release(handle_));
	}

      private:
	/* Release the acquisition of a run, and no other: the function may have released it, and
	 * acquired the lock again. */
	auto release_run(uint64_t fence) const
	{
		lk_hold before{};

		if (fence)
			detail::check(lk_lock_snapshot(handle_, &before));
		return [this, fence, count = handle_owns_ ? 0 : before.count] {
			lk_hold now;
			const lk_err err = lk_lock_snapshot(handle_, &now);

			if (err == LK_OK && (now.fence != fence || now.count < count))
				return LK_ENOTOWNER;
			return err == LK_OK ? lk_lock_release(handle_) : err;
		};
	}

      public:
	/* Call fn() or fn(fence) while the lock is held, and return its result.  The lock is
	 * released before an exception of fn leaves.  Throws LK_ELOST if the hold was lost while fn
	 * ran, and what release() throws. */
	template <class Function> auto run(Function &&fn)
	{
		uint64_t fence = 0;

		detail::check(lk_lock_acquire(handle_, LK_FOREVER, &fence));
		return detail::call_and_release(fn, fence, release_run(fence));
	}

	/* As run(), but wait for the lock at most for this time.  If it was not acquired in time,
	 * fn is not called, and the result is an empty std::optional, or false if fn returns
	 * void. */
	template <class Rep, class Period, class Function>
	auto run_for(const std::chrono::duration<Rep, Period> &wait, Function &&fn)
	{
		uint64_t fence = 0;

		detail::got(lk_lock_acquire(handle_, detail::wait_ms(wait), &fence));
		return detail::call_if_held(fn, fence, release_run(fence));
	}

	/* End every wait in progress on this handle; each throws LK_ECANCELED.  Any thread. */
	void cancel()
	{
		detail::check(lk_lock_cancel(handle_));
	}

	/* The fence of the caller's hold, 0 without one. */
	uint64_t fence() const noexcept
	{
		lk_hold hold;

		return lk_lock_snapshot(handle_, &hold) == LK_OK ? hold.fence : 0;
	}

	/* The caller's hold, as it was at one moment. */
	lk_hold snapshot() const
	{
		lk_hold hold;

		detail::check(lk_lock_snapshot(handle_, &hold));
		return hold;
	}

	bool is_mine() const noexcept
	{
		return lk_lock_is_mine(handle_);
	}

	lk_state state() const noexcept
	{
		return lk_lock_state(handle_);
	}

      private:
	bool acquire(int64_t wait_ms)
	{
		return detail::got(lk_lock_acquire(handle_, wait_ms, nullptr));
	}

	bool handle_owns_ = false;
};

using lock = named_lock;

/* Owns one lk_semaphore. */
class semaphore : public detail::owner<lk_semaphore, lk_semaphore_close>
{
      public:
	/* A hold on some permits, which the destructor releases.  Empty if none were acquired.
	 * Must not outlive its semaphore. */
	class permits
	{
	      public:
		permits() noexcept = default;

		permits(permits &&other) noexcept : from_(other.from_), hold_(other.hold_)
		{
			other.hold_ = 0;
		}

		permits &operator=(permits &&other) noexcept
		{
			if (this != &other) {
				drop();
				from_ = other.from_;
				hold_ = other.hold_;
				other.hold_ = 0;
			}
			return *this;
		}

		permits(const permits &) = delete;
		permits &operator=(const permits &) = delete;

		~permits()
		{
			drop();
		}

		explicit operator bool() const noexcept
		{
			return hold_ != 0;
		}

		/* As the destructor, but throws: LK_ELOST if the hold was lost, LK_ENOTOWNER if
		 * there is none. */
		void release()
		{
			const uint64_t hold = need();

			hold_ = 0;
			detail::check(lk_semaphore_release(from_, hold));
		}

		/* Release count of the permits. */
		void release(int64_t count)
		{
			const bool all = need() && count == snapshot().count;
			const lk_err err = lk_semaphore_release_some(from_, hold_, count);

			if (all && (err == LK_OK || err == LK_EUNKNOWN || err == LK_ELOST))
				hold_ = 0;
			detail::check(err);
		}

		uint64_t fence() const noexcept
		{
			return hold_;
		}

		/* The hold, as it was at one moment; all zero if there is none. */
		lk_hold snapshot() const
		{
			lk_hold hold{};

			if (hold_)
				detail::check(lk_semaphore_snapshot(from_, hold_, &hold));
			return hold;
		}

		lk_state state() const noexcept
		{
			return hold_ ? lk_semaphore_state(from_, hold_) : LK_STATE_NONE;
		}

	      private:
		friend class semaphore;

		permits(lk_semaphore *from, uint64_t hold) noexcept : from_(from), hold_(hold)
		{
		}

		uint64_t need() const
		{
			if (!hold_)
				throw error(LK_ENOTOWNER, "no permits");
			return hold_;
		}

		void drop() noexcept
		{
			if (hold_)
				lk_semaphore_release(from_, hold_);
			hold_ = 0;
		}

		lk_semaphore *from_ = nullptr;
		uint64_t hold_ = 0; /* its fence */
	};

	semaphore(const client &from, const std::string &name, int64_t capacity,
	          lk_semaphore_options options = {})
	{
		options.capacity = capacity;
		detail::check(lk_semaphore_open(from.native_handle(), name.data(), name.size(),
		                                &options, &handle_));
	}

	/* Wait without limit. */
	permits acquire(int64_t count = 1)
	{
		return take(count, LK_FOREVER);
	}

	/* Empty if the permits are not free. */
	permits try_acquire(int64_t count = 1)
	{
		return take(count, 0);
	}

	template <class Rep, class Period>
	permits try_acquire_for(const std::chrono::duration<Rep, Period> &wait, int64_t count = 1)
	{
		return take(count, detail::wait_ms(wait));
	}

	/* As run() and run_for() of a lock, with count permits. */
	template <class Function> auto run(Function &&fn, int64_t count = 1)
	{
		uint64_t fence = 0;

		detail::check(lk_semaphore_acquire(handle_, count, LK_FOREVER, &fence));
		return detail::call_and_release(
			fn, fence, [&] { return lk_semaphore_release(handle_, fence); });
	}

	template <class Rep, class Period, class Function>
	auto run_for(const std::chrono::duration<Rep, Period> &wait, Function &&fn,
	             int64_t count = 1)
	{
		uint64_t fence = 0;

		detail::got(lk_semaphore_acquire(handle_, count, detail::wait_ms(wait), &fence));
		return detail::call_if_held(fn, fence,
		                            [&] { return lk_semaphore_release(handle_, fence); });
	}

      private:
	permits take(int64_t count, int64_t wait_ms)
	{
		uint64_t hold = 0;

		if (!detail::got(lk_semaphore_acquire(handle_, count, wait_ms, &hold)))
			return {};
		return {handle_, hold};
	}
};

/* Owns one lk_latch. */
class latch : public detail::owner<lk_latch, lk_latch_close>
{
      public:
	latch(const client &from, const std::string &name, const lk_latch_options &options = {})
	{
		detail::check(lk_latch_open(from.native_handle(), name.data(), name.size(),
		                            &options, &handle_));
	}

	/* Return false if it counts already; nothing changed then. */
	bool set(int64_t count)
	{
		lk_err err = lk_latch_set(handle_, count, nullptr);

		if (err == LK_EMISMATCH)
			return false;
		detail::check(err);
		return true;
	}

	/* Return the remaining count. */
	int64_t count_down(int64_t n = 1)
	{
		lk_latch_step step{};

		detail::check(lk_latch_down(handle_, n, nullptr, 0, &step));
		return step.remaining;
	}

	/* The same for a named step, which counts once, whichever client sends it. */
	int64_t count_down(const std::string &name, int64_t n = 1)
	{
		lk_latch_step step{};

		detail::check(lk_latch_down(handle_, n, name.data(), name.size(), &step));
		return step.remaining;
	}

	void wait()
	{
		detail::check(lk_latch_await(handle_, LK_FOREVER));
	}

	bool try_wait()
	{
		return detail::got(lk_latch_await(handle_, 0));
	}

	template <class Rep, class Period>
	bool try_wait_for(const std::chrono::duration<Rep, Period> &wait)
	{
		return detail::got(lk_latch_await(handle_, detail::wait_ms(wait)));
	}
};

} // namespace latchkey

#endif
