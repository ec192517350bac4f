//! Settings routes: one for all settings, and one for each. The latter share their handlers; the last segment of the path names
//! the setting.

use super::{GatedFeatures, SETTINGS, Setting, SettingsPatch, Verb, show_all, show_one};
use crate::api::error::ApiError;
use crate::api::router::{Answer, Call, Route};
use crate::api::tasks::{accepted, register as register_task};
use crate::app::App;
use crate::auth::Action;
use crate::control::Features;
use crate::http::{Method, Response};
use crate::routes;
use crate::tasks::task::Content;

/// The routes of this file.
pub fn routes() -> Vec<Route<App>> {
    let mut routes = routes! {
        Get "/indexes/{uid}/settings" SettingsGet => get_all;
        Patch "/indexes/{uid}/settings" SettingsUpdate => update_all;
        Delete "/indexes/{uid}/settings" SettingsUpdate => reset_all;
    };
    routes.extend(SETTINGS.iter().flat_map(routes_of));
    routes
}

fn routes_of(setting: &'static Setting) -> [Route<App>; 3] {
    let method = match setting.verb {
        Verb::Put => Method::Put,
        Verb::Patch => Method::Patch,
    };
    let pattern = setting.pattern;
    let (get, update) = (Some(Action::SettingsGet), Some(Action::SettingsUpdate));
    [
        Route { method: Method::Get, pattern, action: get, handler: |call| Box::pin(get_one(call)) },
        Route { method, pattern, action: update, handler: |call| Box::pin(update_one(call)) },
        Route { method: Method::Delete, pattern, action: update, handler: |call| Box::pin(reset_one(call)) },
    ]
}

impl From<Features> for GatedFeatures {
    fn from(features: Features) -> Self {
        Self {
            chat_completions: features.chat_completions,
            foreign_keys: features.foreign_keys,
            composite_embedders: features.composite_embedders,
            multimodal: features.multimodal,
        }
    }
}

async fn get_all(call: Call<App>) -> Answer {
    let uid = call.index_uid()?;
    let state = call.app.control.state();
    let view = state.index(uid).ok_or_else(|| ApiError::index_not_found(uid))?;
    Ok(Response::from_json(200, &show_all(&view.settings, state.features.into())))
}

async fn get_one(call: Call<App>) -> Answer {
    let uid = call.index_uid()?;
    let state = call.app.control.state();
    let view = state.index(uid).ok_or_else(|| ApiError::index_not_found(uid))?;
    Ok(Response::from_json(200, &show_one(setting_of(&call)?, &view.settings)))
}

async fn update_all(mut call: Call<App>) -> Answer {
    let patch = call.decoded(|body| SettingsPatch::decode(&body)).await?;
    update(call, patch).await
}

async fn update_one(mut call: Call<App>) -> Answer {
    let setting = setting_of(&call)?;
    let patch = call.decoded(move |body| SettingsPatch::decode_one(setting, &body)).await?;
    update(call, patch).await
}

async fn reset_all(call: Call<App>) -> Answer {
    register(call, SettingsPatch::reset_all(), true).await
}

async fn reset_one(call: Call<App>) -> Answer {
    let patch = SettingsPatch::reset(setting_of(&call)?);
    register(call, patch, true).await
}

async fn update(call: Call<App>, patch: SettingsPatch) -> Answer {
    call.index_uid()?;
    patch.check_meaning(call.app.control.state().features.into())?;
    register(call, patch, false).await
}

async fn register(call: Call<App>, patch: SettingsPatch, is_reset: bool) -> Answer {
    let index = call.index_uid()?.to_string();
    let may_create_index = call.grant.allows(Action::IndexesCreate, &index);
    let content = Content::Settings { index, change: patch, is_reset, may_create_index };
    Ok(accepted(&register_task(&call, content.into(), None).await?))
}

/// The setting whose route was called: the last segment of its path.
fn setting_of<A>(call: &Call<A>) -> Result<&'static Setting, ApiError> {
    let segment = call.request.path.rsplit('/').next().unwrap_or_default();
    let segment = crate::api::decode::percent_decode(segment, false);
    Setting::of_route(&segment).ok_or_else(|| ApiError::internal(format!("no setting has the route `{segment}`")))
}
