import { setTimeout } from 'node:timers/promises'
import type { Logger } from '../lib/log.ts'
import { AddressNotAllowed, NoAnswer, type Outbound } from '../lib/outbound.ts'
import { webhookHeaders } from '../lib/standard-webhooks.ts'
import {
  type Attempt,
  attemptMs,
  claimDelivery,
  mailEvent,
  releaseAttempt,
  type Result,
  settleAttempt,
} from '../models/deploy/event-attempts.ts'
import { openWebhookSecrets } from '../models/deploy/event-subscriptions.ts'

const lookEveryMs = 1_000
// A receiver that does not answer keeps its places for 15 s each: it has few, and its tenant has a part of all.
const most = { all: 64, tenant: 16, receiver: 4 }
const shownBytes = 1024

/** Delivers the events of deploy servers. Several workers share the work, delivery by delivery. */
export function startEventSender(outbound: Outbound, log: Logger): { stop(): Promise<void> } {
  const stopping = new AbortController()
  const { signal } = stopping
  const underWay = new Map<Attempt, Promise<void>>()

  const busy = () => {
    const deliveries = [...underWay.keys()].map(({ delivery }) => delivery)
    return {
      receivers: full(most.receiver, deliveries, ({ receiver }) => receiver),
      tenants: full(most.tenant, deliveries, ({ tenant_id }) => tenant_id),
    }
  }

  async function send(attempt: Attempt): Promise<void> {
    const { delivery, subscription } = attempt
    const ids = { delivery_id: delivery._id, subscription_id: subscription._id, attempts: delivery.attempts }
    try {
      if (subscription.url === null) return await mailEvent(attempt)
      const result = await post(outbound, attempt, subscription.url)
      if (signal.aborted && result.error !== null) return await releaseAttempt(attempt)
      await settleAttempt(attempt, result)
      log.info({ ...ids, failure: result.error }, result.error ? 'event not delivered' : 'event delivered')
    } catch (error) {
      // MongoDB is away: the delivery is claimed again.
      log.warn({ err: error, ...ids }, 'the attempt to deliver an event was not recorded')
    }
  }

  async function run(): Promise<void> {
    while (!signal.aborted) {
      if (underWay.size >= most.all) await Promise.race(underWay.values())
      const attempt = await claimDelivery(busy()).catch((error: unknown) => {
        log.warn({ err: error }, 'due events could not be read')
        return null
      })
      if (attempt)
        underWay.set(
          attempt,
          send(attempt).finally(() => underWay.delete(attempt)),
        )
      else await setTimeout(lookEveryMs, undefined, { signal }).catch(() => undefined)
    }
  }

  const running = run()
  return {
    async stop() {
      stopping.abort()
      await running
      await outbound.close()
      await Promise.all(underWay.values())
    },
  }
}

/** The keys that have reached the limit. */
const full = <T>(limit: number, all: T[], keyOf: (one: T) => string): string[] =>
  [...Map.groupBy(all, keyOf)].flatMap(([key, { length }]) => (length < limit ? [] : key))

/** Only an answer of 2xx is a delivery. */
async function post(outbound: Outbound, { delivery, subscription }: Attempt, url: string): Promise<Result> {
  const { event_id: id, body } = delivery
  const began = performance.now()
  const took = () => ({ duration_ms: Math.round(performance.now() - began) })
  const signed = webhookHeaders(await openWebhookSecrets(subscription), { id, time: new Date(), body })
  try {
    const answer = await outbound.fetch(url, {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'user-agent': 'Keelson', ...signed },
      body,
      withinMs: attemptMs,
      mostBytes: shownBytes,
    })
    const { status } = answer
    const said = { response_status: status, response_body: answer.body.toString().replaceAll('\0', '') }
    const isTaken = status >= 200 && status < 300
    return { ...took(), ...said, error: isTaken ? null : `It answered ${status}`, gone: status === 410 }
  } catch (error) {
    if (!(error instanceof AddressNotAllowed || error instanceof NoAnswer)) throw error
    return { ...took(), error: error.message }
  }
}
