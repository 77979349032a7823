import { durable } from '../durable.ts'

/** Only a CA trust that no route uses can be deleted. It is on no host. */
export const deleteCaTrust = durable(() => Promise.resolve('deleted' as const), { final: true })
