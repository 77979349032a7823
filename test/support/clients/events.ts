import { newId } from '../../../lib/ids.ts'
import { eventually } from '../eventually.ts'
import type { Answer, Json } from './ask.ts'
import type { Caller } from './caller.ts'

/** The fields of an event subscription that tests read from the API. */
export interface SubscriptionBody extends Json {
  id: string
  name: string
  enabled: boolean
  status_reason: string | null
  secret: string
}

/** The fields of a delivery that tests read from the API. */
export interface DeliveryBody extends Json {
  id: string
  event_id: string
  kind: string
  message: string
  status: string
  attempts: number
  next_at: string | null
}

/** The event subscriptions of one deploy server. */
export function eventsOf(caller: Caller, server: string) {
  const path = `/api/v1/deploy-servers/${server}/event-subscriptions`
  const events = {
    create: (fields: Json): Promise<Answer> =>
      caller.ask('POST', path, { name: `to-${newId().slice(-12)}`, ...fields }),
    make: async (fields: Json): Promise<SubscriptionBody> => {
      const { status, body } = await events.create(fields)
      if (status !== 201) throw new Error(`no subscription: ${JSON.stringify(body)}`)
      return body as SubscriptionBody
    },
    get: (id: string) => caller.get<SubscriptionBody>(`${path}/${id}`),
    change: (id: string, changes: Json): Promise<Answer> => caller.ask('PATCH', `${path}/${id}`, changes),
    rotate: (id: string): Promise<Answer> => caller.ask('POST', `${path}/${id}/rotate-secret`),
    delete: (id: string): Promise<Answer> => caller.ask('DELETE', `${path}/${id}`),
    tryTest: (id: string): Promise<Answer> => caller.ask('POST', `${path}/${id}/test`),
    /** Sends a test event, without waiting for its delivery. */
    test: async (id: string): Promise<DeliveryBody> => {
      const { status, body } = await events.tryTest(id)
      if (status !== 201) throw new Error(`no test event: ${JSON.stringify(body)}`)
      return body as DeliveryBody
    },
    deliveries: async (id: string, query = '') =>
      (await caller.get<{ items: DeliveryBody[] }>(`${path}/${id}/deliveries?limit=100${query}`)).items,
    delivery: (id: string, delivery: string) =>
      caller.get<DeliveryBody>(`${path}/${id}/deliveries/${delivery}`),
    redeliver: (id: string, delivery: string): Promise<Answer> =>
      caller.ask('POST', `${path}/${id}/deliveries/${delivery}/redeliver`),
    /** The delivery, once an attempt has come to this. */
    awaitDelivery: (id: string, delivery: string, is: (body: DeliveryBody) => boolean) =>
      eventually(async () => {
        const body = await events.delivery(id, delivery)
        return is(body) && body
      }),
  }
  return events
}
