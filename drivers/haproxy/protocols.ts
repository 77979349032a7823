import type { ListenerSpec, RouteSpec } from '../load-balancers.ts'

// What a listener does with what its clients send.

type Speaking = Pick<ListenerSpec, 'protocol'>

/** Whether the listener passes on what its clients send as it is, and not as HTTP. */
export const takesBytes = ({ protocol }: Speaking): boolean => protocol === 'tcp' || protocol === 'tls'

/** Whether the TLS of its clients ends at the listener. */
export const endsTls = ({ protocol }: Speaking): boolean => protocol === 'https' || protocol === 'tls'

/** Whether the route takes what comes through the listener. */
export const takes = ({ listener_port }: RouteSpec, { port }: Pick<ListenerSpec, 'port'>): boolean =>
  listener_port === null || listener_port === port
