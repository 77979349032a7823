import { Readable } from 'node:stream'
import { SignJWT } from 'jose'
import { newId } from '../../lib/ids.ts'
import { planeAudience, planeSubject, planeTokenSec, planeTokenType } from '../../lib/host-protocol.ts'
import { NotFound, Unavailable } from '../../lib/problem.ts'
import { Host } from '../../models/compute/hosts.ts'
import { sign } from '../../models/identity/signing-keys.ts'

/**
 * Asks the host that has an instance. Clients never reach a host: the API does, with a token for this one
 * instance and verb that is good once. Throws NotFound, Unavailable.
 */
export async function askHost(
  hostId: string,
  instanceId: string,
  verb: 'logs',
  query: URLSearchParams,
  signal: AbortSignal,
): Promise<Readable> {
  const host = await Host.findById(hostId).lean()
  if (!host?.data_plane_url) throw new Unavailable('The host of this instance is not there')
  const token = await sign(
    new SignJWT()
      .setAudience(planeAudience(hostId))
      .setSubject(planeSubject(instanceId, verb))
      .setJti(newId())
      .setIssuedAt()
      .setExpirationTime(`${planeTokenSec} s`),
    planeTokenType,
  )
  const url = new URL(`/instances/${instanceId}/${verb}?${query.toString()}`, host.data_plane_url)
  const answer = await fetch(url, { headers: { authorization: `Bearer ${token}` }, signal }).catch(
    (cause: unknown) => {
      throw new Unavailable('The host of this instance does not answer', cause)
    },
  )
  if (answer.ok && answer.body) return Readable.fromWeb(answer.body)
  await answer.body?.cancel()
  if (answer.status === 404) throw new NotFound('instance on its host')
  throw new Unavailable('The host of this instance refused')
}
