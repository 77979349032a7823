import { durable } from '../durable.ts'

/** Only a certificate that no load balancer uses can be deleted. It is on no host. */
export const deleteCertificate = durable(() => Promise.resolve('deleted' as const), { final: true })
